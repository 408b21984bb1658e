"Lay out the pages of the documentation site: notebooks as they are, README as the home page, one page for the public API."
import re, shutil
from pathlib import Path

root = Path(__file__).parent.parent
pages = root/"_docs"/"pages"
if pages.exists(): shutil.rmtree(pages)
shutil.copytree(root/"nbs", pages, ignore=shutil.ignore_patterns("index.ipynb", "results", ".ipynb_checkpoints"))
home = re.sub(r"\]\(nbs/", "](", (root/"README.md").read_text(encoding="utf-8"))
(pages/"README.md").write_text(home, encoding="utf-8")
modules = sorted((root/"nbs").glob("[0-9]*.ipynb"))
(pages/"api.md").write_text("# Public API\n\n"+"\n".join(f"## {m.stem[3:]}\n\nChapter: [{m.stem}]({m.name})\n\n::: diffgr2.{m.stem[3:]}\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n" for m in modules), encoding="utf-8")
