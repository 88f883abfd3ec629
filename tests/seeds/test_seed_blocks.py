"""Every code block of the two descriptions of the hybrid block runs as written.

The texts are not part of this project: they are read from the folder that ``REGLUON_SEEDS`` names, or from
``../shared/seeds`` beside the checkout, and the tests that need them skip where they are not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import seed_blocks

import regluon as mx
from regluon.gluon.model_zoo import model_store

ROOT = Path(__file__).parents[2]
# What a text takes for granted before its first block: the second one never imports gluon.
PREAMBLE = "import mxnet as mx\nfrom mxnet import gluon\n"
MARK = "-- block"


def seeds() -> list[Path]:
    folder = Path(os.environ.get("REGLUON_SEEDS") or ROOT.parent / "shared" / "seeds")
    return sorted(folder.glob("*.txt")) if folder.is_dir() else []


def texts_or_skip() -> list[list[str]]:
    if not seeds():
        pytest.skip("the descriptions are not here: set REGLUON_SEEDS to their folder")
    return [seed_blocks.code_blocks(path.read_text()) for path in seeds()]


def script_of(blocks: list[str], after: dict[int, str] | None = None) -> str:
    """All blocks of one text as one script: later blocks use the names of earlier ones."""
    parts = [PREAMBLE]
    for index, block in enumerate(blocks):
        parts.append(f"print('{MARK} {index}')\n{block}\n{(after or {}).get(index, '')}")
    return "\n".join(parts)


def run_script(source: str, folder: Path, *options: str, **environment: str) -> str:
    """Run ``source`` under ``regluon run``; its output."""
    script = folder / "script.py"
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "regluon", "run", *options, str(script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def printed_by_block(output: str) -> list[str]:
    """What each block printed, in order."""
    return re.split(rf"^{MARK} \d+$", output, flags=re.MULTILINE)[1:]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pretrained files, as MXNET_HOME: random weights under the names of the model zoo."""
    home = tmp_path_factory.mktemp("home")
    (home / "models").mkdir()
    for name, size in (("resnet18_v1", 32), ("alexnet", 224)):
        net = mx.gluon.model_zoo.vision.get_model(name)
        net.initialize(mx.init.Xavier())
        net(mx.np.zeros((1, 3, size, size)))
        net.save_parameters(str(home / "models" / f"{name}-{model_store.short_hash(name)}.params"))
    return home


def test_blocks_are_found() -> None:
    for blocks in texts_or_skip():
        assert len(blocks) >= 4
        assert any("class " in block for block in blocks)
        assert any("export(" in block for block in blocks)


def test_every_block_runs_in_order(tmp_path: Path, store: Path) -> None:
    for number, blocks in enumerate(texts_or_skip()):
        folder = tmp_path / str(number)
        folder.mkdir()
        output = run_script(script_of(blocks), folder, MXNET_HOME=str(store))
        assert len(printed_by_block(output)) == len(blocks)
        exported = [name for block in blocks for name in re.findall(r"export\('(\w+)', epoch=1\)", block)]
        for name in exported:
            assert (folder / f"{name}-symbol.json").exists()
            assert (folder / f"{name}-0001.params").exists()


def test_prints_an_array_on_every_call_and_one_symbol_after_each_hybridize(tmp_path: Path) -> None:
    text = next((blocks for blocks in texts_or_skip() if any("print(x)" in block for block in blocks)), None)
    assert text is not None
    printed = printed_by_block(run_script(script_of(text), tmp_path))
    hybridized = fresh = False
    for block, output in zip(text, printed, strict=True):
        if re.search(r"^net\.hybridize\(", block, flags=re.MULTILINE):
            hybridized = fresh = True
        calls = len(re.findall(r"^net\(x\)", block, flags=re.MULTILINE))
        arrays, symbols = output.count("<NDArray"), output.count("<Symbol")
        assert arrays == (0 if hybridized else calls)
        assert symbols == (1 if fresh and calls else 0)
        fresh = fresh and not calls


RUN_LOOSE = """
class Loose(gluon.HybridBlock):
    hybrid_forward = hybrid_forward

loose, sample = Loose(), mx.nd.random_normal(shape=(3, 4))
plain = loose(sample)
loose.hybridize()
assert (plain == loose(sample)).asnumpy().all(), "hybridized differs from imperative"
print("same")
"""


def test_loose_hybrid_forward_functions_work_both_ways(tmp_path: Path) -> None:
    found = 0
    for blocks in texts_or_skip():
        loose = [block for block in blocks if block.startswith("def hybrid_forward(")]
        found += len(loose)
        if loose:
            output = run_script(script_of(loose, dict.fromkeys(range(len(loose)), RUN_LOOSE)), tmp_path)
            assert output.count("same") == len(loose)
    assert found


SAME_AS_SOURCE = """
source = globals()["net1"] if "net1" in globals() else net
assert abs(source(x).asnumpy() - net2(x).asnumpy()).max() < 1e-4, "the reloaded network differs"
print("reloaded")
"""


def test_reloaded_networks_agree(tmp_path: Path, store: Path) -> None:
    found = 0
    for number, blocks in enumerate(texts_or_skip()):
        places = [index for index, block in enumerate(blocks) if "SymbolBlock.imports(" in block]
        after = dict.fromkeys(places, SAME_AS_SOURCE)
        folder = tmp_path / str(number)
        folder.mkdir()
        output = run_script(script_of(blocks, after), folder, MXNET_HOME=str(store))
        found += output.count("reloaded")
    assert found == 2


FEATURES = """
sample = mx.nd.random.normal(shape=(1, 3, 224, 224))
features = feat_model(sample)
assert [feature.shape for feature in features] == [(1, 4096), (1, 4096)]
whole = alexnet(sample)
assert abs(alexnet.output(features[1]).asnumpy() - whole.asnumpy()).max() < 1e-3
print("features")
"""


def test_feature_extractor_gives_the_inner_layers(tmp_path: Path, store: Path) -> None:
    found = 0
    for number, blocks in enumerate(texts_or_skip()):
        after = {index: FEATURES for index, block in enumerate(blocks) if "get_internals()" in block}
        if after:
            folder = tmp_path / str(number)
            folder.mkdir()
            found += run_script(script_of(blocks, after), folder, MXNET_HOME=str(store)).count("features")
    assert found == 1


@pytest.mark.parametrize(
    "flattened, restored",
    [
        ("import a from b import c, d", "import a\nfrom b import c, d"),
        (
            "class A(B): def f(self, x): y = g(x) return y a = A() a.f(1)",
            "class A(B):\n    def f(self, x):\n        y = g(x)\n        return y\na = A()\na.f(1)",
        ),
        ("x = f(1) y = [x['a'], x['b']] g(y, z=x)", "x = f(1)\ny = [x['a'], x['b']]\ng(y, z=x)"),
        ("def f(self, active=True, flag=None)", None),
        ("call f(x) to see what it does", None),
        ("Summary", None),
    ],
)
def test_lost_line_breaks_are_restored(flattened: str, restored: str | None) -> None:
    if restored is not None and "(" not in flattened:
        flattened, restored = f"{flattened} f()", f"{restored}\nf()"
    assert seed_blocks.restore_lines(flattened) == restored


def test_paragraphs_of_code_are_told_from_prose() -> None:
    code = ["import a", "class B:\n    x = 1\n\n    y = 2", "z = B()"]
    text = "\n\n".join(["Heading", "Some words, then code:", *code[:2], "Note that it ends.", code[2]])
    assert seed_blocks.code_blocks(text) == code
