"""Write the reference pages anew."""

from docs.generator.everything import FOLDER, texts

for name, text in texts().items():
    (FOLDER / name).write_text(text)
