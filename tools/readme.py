"README.md from nbs/index.ipynb: `python tools/readme.py [--execute]`. Input cells that begin with `#| output` show their output only, `#| hide` cells vanish."
import re, sys
from pathlib import Path
import nbformat
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parent.parent
INDEX = ROOT/"nbs"/"index.ipynb"

def execute():
    "Run the notebook in place, without widget state and without execution times."
    from nbconvert.preprocessors import ExecutePreprocessor
    nb = nbformat.read(INDEX, 4)
    ExecutePreprocessor(timeout=600, kernel_name="python3", store_widget_state=False, record_timing=False).preprocess(nb, {"metadata": {"path": str(INDEX.parent)}})
    nb.metadata = nbformat.from_dict(dict(kernelspec=dict(display_name="python3", language="python", name="python3")))
    for c in nb.cells:
        c.metadata = {}
        if c.cell_type == "code": c.execution_count = None
        for o in c.get("outputs", []):
            if "execution_count" in o: o.execution_count = None
    nbformat.write(nb, INDEX)

def render()->str:
    "The README's text."
    nb = nbformat.read(INDEX, 4)
    cells = []
    for c in nb.cells:
        if c.cell_type == "code":
            if re.match(r"#\|\s*hide", c.source): continue
            if re.match(r"#\|\s*output", c.source):
                text = "\n\n".join("".join(o["data"].get("text/markdown", "")) for o in c.outputs if "data" in o)
                c = nbformat.v4.new_markdown_cell(text)
        cells.append(c)
    nb.cells = cells
    text, _ = MarkdownExporter().from_notebook_node(nb)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()+"\n"

if __name__ == "__main__":
    if "--execute" in sys.argv: execute()
    (ROOT/"README.md").write_text(render(), encoding="utf-8")
