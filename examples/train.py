import sys

from lotan.cli import main

sys.exit(main(["train", *sys.argv[1:]]))
