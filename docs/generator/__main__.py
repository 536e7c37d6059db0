"""Write the reference pages."""

import sys

from docs.generator.everything import FOLDER, texts
from docs.generator.markdown import UndescribedError

try:
    pages = texts()
except UndescribedError as error:
    sys.exit(f"make reference: {error}")
for name, text in pages.items():
    (FOLDER / name).write_text(text)
