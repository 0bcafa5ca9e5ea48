"""The control lane: what is asked for, how the journal changes, who decides."""
