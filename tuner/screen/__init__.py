"""The live terminal screen of a search, and the plain lines that stand in for it elsewhere.

`live` runs it, `search_page`, `trial_page` and `help_page` draw it, `pages` follows the keys from
one to the other, `terminal` reads them and gives the terminal back as it was.
"""

from rltune.screen.live import LiveScreen
from rltune.screen.search_page import SearchScreen
from rltune.screen.terminal import restore_terminal

__all__ = ["LiveScreen", "SearchScreen", "restore_terminal"]
