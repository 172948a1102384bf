"""Public implementations on the same victims, one after another as they are written. Run by hand, on a GPU.

    python benchmarks/peers/public.py --who breaching-modern --code DIR --network lenet --batch 1 --out F.json

`--code` is a checkout of github.com/JonasGeiping/breaching, or of invertinggradients for `--who original`. Only their
attacks are loaded: what their packages import for data and models of their own is not needed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
from scores import scores
from torch import Tensor, nn
from victims import NETWORKS, Victims, victims

WHO = ("original", "breaching-invertinggradients", "breaching-modern")


class Settings(dict[str, Any]):
    """A dictionary whose keys are attributes too, which is what these packages expect of their settings."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class FromNormal(nn.Module):
    """Takes inputs in standard deviations of the data, as these packages search them."""

    def __init__(self, model: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model = model
        self.mean, self.std = mean, std  # no buffers: the attacks copy all buffers of a model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * self.std + self.mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--who", choices=WHO, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--network", choices=NETWORKS, required=True)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--victims", type=int, default=20)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pictures", type=Path, required=True)
    parser.add_argument("--half", default="test")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tf32", action="store_true", help="as ours.py with --precision tf32")
    parser.add_argument("--out", type=Path, required=True)
    told = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = told.tf32
    seen = victims(told.network, told.batch, told.victims, told.pictures, told.half, told.device)
    mean, std = (torch.tensor(v, device=told.device)[None, :, None, None] for v in (seen.data.mean, seen.data.std))
    model = FromNormal(seen.model, mean, std).to(told.device)
    play = original if told.who == "original" else breaching
    found, began = [], time.perf_counter()
    for t in range(told.victims):
        torch.manual_seed(t)
        found.append((play(told, model, seen, t, mean, std).detach() * std + mean).cpu())
    seconds, precision = time.perf_counter() - began, "tf32" if told.tf32 else "float32"
    row = {
        "who": told.who,
        "network": told.network,
        "batch": told.batch,
        "steps": told.steps,
        "seconds": seconds,
        "torch": torch.__version__,
        "precision": precision,
        "device": told.device,
    }
    told.out.write_text(json.dumps(row | scores(seen, torch.stack(found).to(seen.inputs))))


def original(told: argparse.Namespace, model: nn.Module, seen: Victims, t: int, mean: Tensor, std: Tensor) -> Tensor:
    """Geiping et al.'s first code with signed gradients and tv=1e-2."""
    _stand_in("torchvision")
    _stand_in("inversefed", told.code / "inversefed")
    _stand_in("inversefed.nn", MetaMonkey=None)
    from inversefed.reconstruction_algorithms import GradientReconstructor  # type: ignore[import-not-found]

    config = {
        "signed": True,
        "boxed": True,
        "cost_fn": "sim",
        "indices": "def",
        "weights": "equal",
        "lr": 0.1,
        "optim": "adam",
        "restarts": 1,
        "max_iterations": told.steps,
        "total_variation": 1e-2,
        "init": "randn",
        "filter": "none",
        "lr_decay": True,
        "scoring_choice": "loss",
    }
    attack = GradientReconstructor(model, (mean, std), config, num_images=told.batch)
    found, _ = attack.reconstruct([g[t] for g in seen.gradients.values()], seen.labels[t], img_shape=seen.data.shape)
    return found


def breaching(told: argparse.Namespace, model: nn.Module, seen: Victims, t: int, *_: Tensor) -> Tensor:
    """The framework's two settings for pictures, as its files have them."""
    for package in ("", ".attacks", ".attacks.auxiliaries", ".cases", ".cases.models"):
        _stand_in(f"breaching{package}", told.code.joinpath("breaching", *package.split(".")[1:]))
    from breaching.attacks.optimization_based_attack import OptimizationBasedAttacker  # type: ignore[import-not-found]

    modern = told.who == "breaching-modern"
    smooth = {"scale": 0.1, "inner_exp": 2, "outer_exp": 0.5, "double_opponents": True}
    plain = {"scale": 0.2, "inner_exp": 1, "outer_exp": 1}
    config = {
        "type": "invertinggradients",
        "attack_type": "optimization",
        "label_strategy": None,
        "text_strategy": None,
        "token_recovery": None,
        "objective": {"type": "cosine-similarity", "scale": 1.0, "task_regularization": 0.0},
        "restarts": {"num_trials": 1, "scoring": "cosine-similarity"},
        "init": "patterned-4" if modern else "randn",
        "normalize_gradients": False,
        "optim": {
            "optimizer": "adam",
            "signed": "soft" if modern else "hard",
            "step_size": 0.1,
            "boxed": True,
            "max_iterations": told.steps,
            "step_size_decay": "cosine-decay" if modern else "step-lr",
            "langevin_noise": 0.0,
            "warmup": 50 if modern else 0,
            "grad_clip": None,
            "callback": 10**9,
        },
        "augmentations": None,
        "differentiable_augmentations": False,
        "regularization": {"total_variation": smooth, "features": {"scale": 0.1}}
        if modern
        else {"total_variation": plain},
        "impl": {"dtype": "float", "mixed_precision": False, "JIT": ""},
    }
    setup = {"dtype": torch.float, "device": torch.device(told.device)}
    attack = OptimizationBasedAttacker(model, nn.CrossEntropyLoss(), _as_settings(config), setup)
    about = {"shape": seen.data.shape, "mean": seen.data.mean, "std": seen.data.std, "modality": "vision"}
    sent = {"parameters": list(model.parameters()), "buffers": list(model.buffers()), "metadata": Settings(about)}
    client = {"num_data_points": told.batch, "labels": seen.labels[t], "local_hyperparams": None}
    shared = {"gradients": [g[t] for g in seen.gradients.values()], "buffers": None, "metadata": client}
    found, _ = attack.reconstruct([sent], [shared], server_secrets={})
    return found["data"]


def _as_settings(tree: Any) -> Any:
    return Settings({k: _as_settings(v) for k, v in tree.items()}) if isinstance(tree, dict) else tree


def _stand_in(name: str, folder: Path | None = None, **names: Any) -> None:
    """A package whose own `__init__` is not run."""
    if name not in sys.modules:
        module = types.ModuleType(name)
        module.__path__ = [] if folder is None else [str(folder)]
        vars(module).update(names)
        sys.modules[name] = module


if __name__ == "__main__":
    main()
