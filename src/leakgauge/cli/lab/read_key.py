"""`leakgauge lab read-key`: FedKL's private key, computed from the gradient of the lock layer, beside the true key."""

from __future__ import annotations

from dataclasses import dataclass

from leakgauge.cli import options
from leakgauge.cli.console import show, show_json, show_table
from leakgauge.cli.options import Common, flag, flags_from
from leakgauge.defenses.key_lock import KeyLock, misfit, read_key
from leakgauge.errors import BadInput
from leakgauge.models.locked_norm import draw_locks, locks_in
from leakgauge.setup.plan import parse_chain
from leakgauge.setup.setup import load_setup
from leakgauge.types import Scenario

_DEFAULT = "key-lock:told=gradient"


@dataclass(frozen=True, kw_only=True)
class KeyFlags(Common):
    """The options of `leakgauge lab read-key`."""

    lock: str = flag("key-lock with told=gradient and further fields, perhaps +other defenses.", default=_DEFAULT)
    model: options.MODEL = None
    data: options.DATA = None
    trials: options.TRIALS = None
    batch_size: options.BATCH_SIZE = None
    local: options.LOCAL = None
    precision: options.PRECISION = None


@flags_from(KeyFlags)
def read_keys(given: KeyFlags) -> int:
    """Divide the gradient of the lock's weight by that of its bias: how far is that from the client's key?

    Example: `leakgauge lab read-key --data digits --model lenet-dlg --local batchnorm=train --trials 50`
    """
    chain = parse_chain(given.lock)
    if sum(isinstance(d, KeyLock) and "gradient" in d.told for d in chain) != 1:
        allowed, do = "one key-lock that shares the gradient of its lock layer", f"for example --lock {_DEFAULT}"
        raise BadInput("--lock", allowed=allowed, got=repr(given.lock), do=do)
    named = ("model", "data", "trials", "batch_size", "local", "precision", "seed")
    flags = {name: getattr(given, name) for name in named}
    scenario = options.changed(Scenario(), **flags, defenses=(given.lock,))
    setup = load_setup(scenario, given.data_root, given.device)
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
    if given.as_json:
        show_json(result)
        return 0
    show_table(
        ["client", "largest error of the key", "unexplained share of the gradient"],
        [[str(t), f"{e:.1e}", f"{m:.1e}"] for t, (e, m) in enumerate(zip(errors, misfits, strict=True))],
    )
    show(
        f"{len(errors)} keys of {true.shape[1]} numbers between 0 and 1, read without the truth; largest error "
        f"{max(errors):.1e}."
    )
    return 0
