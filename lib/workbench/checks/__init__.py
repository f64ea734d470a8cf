"""Claims about the lake, compared with the source (`check`) or with published values (`published`)."""

from ..base.errors import CheckFailed
