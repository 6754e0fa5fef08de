import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.importers.arrivals import ARRIVALS
from telemetry.importers.contract import Importer, Options
from telemetry.importers.fio import FIO
from telemetry.importers.nvidia_smi import NVIDIA_SMI
from telemetry.importers.prometheus import PROMETHEUS
from telemetry.importers.starpu import STARPU
from tests.telemetry.test_import_arrivals import AZURE
from tests.telemetry.test_import_fio import JOB, report
from tests.telemetry.test_import_nvidia_smi import CARD, log
from tests.telemetry.test_import_prometheus import WAITS
from tests.telemetry.test_import_starpu import combination, model, table

WHOLE = {
    ARRIVALS: AZURE,
    FIO: json.dumps(report(JOB), indent=2),
    NVIDIA_SMI: log(CARD) + log(CARD),
    PROMETHEUS: WAITS,
    STARPU: model(*(combination(1, i, table(f"cuda{i}", [f"0a\t16\t1e9\t2\t1\t8\t20\t{4 + i}"])) for i in range(3))),
}
WORDS = [
    "nan",
    "-1",
    "1e999",
    "",
    "9" * 30,
    "N/A",
    '"',
    "{",
    "}",
    "\x00",
    "\ufffd",
    "#",
    "\n",
    "null",
    "[]",
    "true",
    "<",
    "1e300",
]
damage = st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(WORDS))


@pytest.mark.parametrize("importer", WHOLE, ids=lambda importer: importer.name)
@given(damages=st.lists(damage, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_damage_is_refused_or_told_and_never_raised(
    tmp_path_factory: pytest.TempPathFactory, importer: Importer, damages: list[tuple[float, int, str]]
) -> None:
    text = WHOLE[importer]
    for place, length, word in damages:
        at = int(place * len(text))
        text = text[:at] + word + text[at + length :]
    path = tmp_path_factory.getbasetemp() / f"damaged-{importer.name}"
    path.write_text(text)
    importer.recognises(path, text.encode())
    first = importer.read(path, Options())
    assert first == importer.read(path, Options())
    assert all(refusal.reason for refusal in first.refused)
