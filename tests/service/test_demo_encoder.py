"""One checkpoint, two backends, one answer; and a file that is really read and really let go."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError

from calibrate.hosts.pagecache import evict, resident_fraction
from service.demo.backends import backend
from service.demo.encoder import N_LAYERS, VOCABULARY, WIDTH, Encoder, best_backend, checkpoint, truncated_checkpoint

TORCH = pytest.param(
    "torch", marks=[pytest.mark.torch, pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")]
)
BOTH = pytest.mark.parametrize("name", ["numpy", TORCH])
TOKENS = [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("weights"))


def loaded(name: str, path: Path) -> Encoder:
    encoder = backend(name, 2)
    encoder.open(path)
    encoder.materialize()
    return encoder


def output(encoder: Encoder, tokens: list[list[int]]) -> np.ndarray:
    assert list(encoder.layers(tokens)) == list(range(N_LAYERS))
    return np.array(encoder.output())


def test_checkpoint_has_about_55_megabytes(weights: Path) -> None:
    assert weights.stat().st_size == pytest.approx(55e6, rel=0.01)


def test_checkpoint_is_kept_while_it_is_whole_and_made_again_when_damaged(weights: Path) -> None:
    made_ns = weights.stat().st_mtime_ns
    content = weights.read_bytes()
    assert checkpoint(weights.parent).stat().st_mtime_ns == made_ns
    weights.write_bytes(content[:-1] + b"\0")
    assert checkpoint(weights.parent).read_bytes() == content


@BOTH
def test_output_has_one_number_per_channel_and_depends_on_the_tokens(name: str, weights: Path) -> None:
    encoder = loaded(name, weights)
    one, other = output(encoder, TOKENS), output(encoder, [[1, 2, 3, 4], [5, 6, 7, 9]])
    assert one.shape == (WIDTH,)
    assert np.isfinite(one).all()
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.torch
def test_backends_agree(weights: Path) -> None:
    pytest.importorskip("torch")
    np.testing.assert_allclose(output(loaded("numpy", weights), TOKENS), output(loaded("torch", weights), TOKENS), atol=1e-4)


@BOTH
def test_after_materialising_the_file_is_needed_no_more(name: str, weights: Path) -> None:
    if not evict(weights):
        pytest.skip("this file system does not drop pages")
    encoder = loaded(name, weights)
    assert resident_fraction(weights) == 1.0, "every page was touched before the load counted as done"
    assert evict(weights), "no mapping is left that would keep the file in the page cache"
    output(encoder, TOKENS)
    assert resident_fraction(weights) == 0.0, "computing reads memory of our own"


@BOTH
def test_release_gives_up_weights_and_mapping(name: str, weights: Path) -> None:
    encoder = backend(name, 2)
    encoder.open(weights)
    encoder.release()
    with pytest.raises(KeyError):
        next(encoder.layers(TOKENS))


@BOTH
def test_truncated_checkpoint_is_refused_by_the_reader_itself(name: str, weights: Path) -> None:
    with pytest.raises(SafetensorError):
        backend(name, 2).open(truncated_checkpoint(weights))


@BOTH
def test_id_past_the_vocabulary_is_refused_by_the_lookup_itself(name: str, weights: Path) -> None:
    with pytest.raises(IndexError):
        next(loaded(name, weights).layers([[0, VOCABULARY]]))


def test_numpy_stands_in_where_torch_is_not_wanted_or_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_backend(allow_torch=False) == "numpy"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert best_backend() == "numpy"
