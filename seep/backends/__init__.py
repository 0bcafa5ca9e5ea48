"""How a slot is had. A backend starts and ends workers; it never sees their data."""
