"""`leakgauge lab read-key`: FedKL's private key, computed from the gradient of the lock layer, beside the true key."""

from __future__ import annotations

from typing import Annotated

import typer

from leakgauge.cli import options
from leakgauge.cli.console import show, show_json, show_table
from leakgauge.defenses.key_lock import KeyLock, misfit, read_key
from leakgauge.errors import BadInput
from leakgauge.models.locked_norm import draw_locks, locks_in
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

_DEFAULT = "key-lock:told=gradient"


def read_keys(
    lock: Annotated[
        str, typer.Option("--lock", help="key-lock with told=gradient and further fields, perhaps +other defenses.")
    ] = _DEFAULT,
    model: options.MODEL = None,
    data: options.DATA = None,
    trials: options.TRIALS = None,
    batch_size: options.BATCH_SIZE = None,
    local: options.LOCAL = None,
    precision: options.PRECISION = None,
    seed: options.SEED = None,
    device: options.DEVICE = "auto",
    data_root: options.DATA_ROOT = None,
    as_json: options.JSON = False,
) -> None:
    """Divide the gradient of the lock's weight by that of its bias: how far is that from the client's key?

    Example: `leakgauge lab read-key --data digits --model lenet-dlg --local batchnorm=train --trials 50`
    """
    chain = parse_chain(lock)
    if sum(isinstance(d, KeyLock) and "gradient" in d.told for d in chain) != 1:
        raise BadInput(
            "--lock",
            allowed="one key-lock that shares the gradient of its lock layer",
            got=repr(lock),
            do=f"for example --lock {_DEFAULT}",
        )
    scenario = options.changed(
        Scenario(),
        model=model,
        data=data,
        trials=trials,
        batch_size=batch_size,
        local=local,
        precision=precision,
        seed=seed,
        defenses=(lock,),
    )
    setup = load_setup(scenario, data_root, device)
    update = setup.update(chain, setup.model)
    sent = setup.model
    for defense in chain:
        sent = defense.prepare(sent)
    ((name, layer),) = locks_in(sent).items()
    init = next(d.init for d in chain if isinstance(d, KeyLock))
    weight, bias = (update.tensors[f"{name}.{part}" if name else part] for part in ("weight", "bias"))
    key = read_key(weight, bias)
    true = draw_locks(scenario.seeds, layer, init)["key"].to(key)
    errors, misfits = (key - true).abs().amax(1).tolist(), misfit(weight, bias, key).tolist()
    result = {
        "length": true.shape[1],
        "largest_error": max(errors),
        "clients": [
            {"trial": t, "error": e, "misfit": m} for t, (e, m) in enumerate(zip(errors, misfits, strict=True))
        ],
        "scenario": scenario.as_dict(),
    }
    if as_json:
        show_json(result)
        return
    show_table(
        ["client", "largest error of the key", "unexplained share of the gradient"],
        [[str(t), f"{e:.1e}", f"{m:.1e}"] for t, (e, m) in enumerate(zip(errors, misfits, strict=True))],
    )
    show(
        f"{len(errors)} keys of {true.shape[1]} numbers between 0 and 1, read without the truth; largest error "
        f"{max(errors):.1e}."
    )
