"""Write the dashboards."""

from deploy.grafana.generator.everything import FOLDER, texts

for name, text in texts().items():
    (FOLDER / name).write_text(text)
