"""Chat templates whose text does not depend on the day.

Templates of Llama 3 and others print the date of the day (`strftime_now`). The rows of a stage, and an embedded
teacher's prompts, would then be others tomorrow. They have one fixed date instead. Does not change what a checkpoint
holds: a server still prints the date of the day.
"""

import re
from datetime import UTC, datetime

FIXED_DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""The date that the template of Llama 3 has where no clock is known to it."""
_TODAY = re.compile(r"""strftime_now\(\s*(?P<quote>['"])(?P<format>[^'"{}\\]*)(?P=quote)\s*\)""")


def with_fixed_date(template: str) -> str:
    """The template with this date instead of the present date, at each place where it formats a date."""
    return _TODAY.sub(lambda match: f"'{FIXED_DATE.strftime(match['format'])}'", template)
