"""What a run shows: tables, plots, pages, progress."""

import logging

# Where its cache cannot be written matplotlib makes a private one and removes it at the end, with a warning of several
# lines that nobody who trains a model has asked for. Set before matplotlib is imported.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
