"""Cases whose results seep does not share on purpose, where no rule could tell: by the end of their name.

Most differences by design are rules, beside the comparison that finds them (`scripts`, `sequences`); this list is for
single cases.
"""

from __future__ import annotations

NULL_KEY = "a Table has one row for each key: of a full join's unmatched rows with a null key it shows the left one"
STOPS = "a value that cannot be computed stops the flow behind a Table, it does not become null"

LISTED = {
    "issue_8084.slt:16": NULL_KEY,
    "full_outer_join_global_agg.slt.part:106": NULL_KEY,
    "non_strict_mode.slt:74": STOPS,
}


def reason_for(case: str) -> str:
    """Why this case may differ; nothing if it may not."""
    return next((reason for name, reason in LISTED.items() if case.endswith(name)), "")
