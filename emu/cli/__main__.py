"""``python -m emu.cli`` is ``supernode``."""

from . import main

main()
