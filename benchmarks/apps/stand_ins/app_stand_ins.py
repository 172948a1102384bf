"""Data sets and models of the same form, for apps whose own are behind a network.

Nothing of an app is changed: what is replaced is what `datasets.load_dataset`, `torchvision.datasets`, `evaluate.load`
and the `from_pretrained` of transformers would have downloaded. Each is patched when it is first imported.
APPS_SAMPLES says how many training samples there are in all; LEAKGAUGE_DATA where the data sets of Leakgauge lie.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import random
import sys
from collections.abc import Callable
from typing import Any

_TOPICS = ("film", "actor", "story", "scene", "ending", "music", "plot", "director", "dialogue", "cast")
_GOOD = ("great", "moving", "funny", "bright", "honest", "warm", "clever")
_BAD = ("dull", "slow", "weak", "loud", "flat", "cold", "silly")


def install() -> None:
    sys.meta_path.insert(0, _Patching())


class _Patching(importlib.machinery.PathFinder):
    """Finds a module as usual, and changes it once it is loaded."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in _PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            before, after = _PATCHES[fullname]
            run = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                before()
                run(module)
                after(sys.modules.get(fullname, module))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def samples() -> int:
    return int(os.environ.get("APPS_SAMPLES", "120"))


# --- data sets ------------------------------------------------------------------------------------------------------


@functools.cache
def pictures(name: str, count: int, skip: int = 0) -> tuple[Any, Any]:
    """uint8 (M, H, W[, 3]) and labels, of a data set that Leakgauge reads."""
    from leakgauge.data import loading

    whole = loading.load(name, "test")
    inputs = whole.inputs[skip : skip + count]
    bytes_ = inputs if str(inputs.dtype) == "torch.uint8" else (inputs * 255).round().byte()
    moved = bytes_.movedim(1, -1).numpy()
    return (moved[..., 0] if moved.shape[-1] == 1 else moved), whole.labels[skip : skip + count].tolist()


def _table_of_pictures(key: str, source: str) -> Callable[[int, int], dict[str, Any]]:
    def rows(count: int, skip: int) -> dict[str, Any]:
        from PIL import Image

        inputs, labels = pictures(source, count, skip)
        return {key: [Image.fromarray(x) for x in inputs], "label": labels}

    return rows


def _reviews(count: int, skip: int) -> dict[str, Any]:
    draw = random.Random(skip)
    labels = [draw.randrange(2) for _ in range(count)]
    words = lambda good: " ".join(  # noqa: E731
        f"the {draw.choice(_TOPICS)} was {draw.choice(_GOOD if good else _BAD)}" for _ in range(draw.randint(3, 5))
    )
    return {"text": [words(label) for label in labels], "label": labels}


def _instructions(count: int, skip: int) -> dict[str, Any]:
    draw = random.Random(skip)
    topics = [draw.choice(_TOPICS) for _ in range(count)]
    return {
        "instruction": [f"describe the {topic}" for topic in topics],
        "input": [""] * count,
        "output": [f"the {topic} was {draw.choice(_GOOD + _BAD)}" for topic in topics],
    }


def _census(count: int, skip: int) -> dict[str, Any]:
    from pathlib import Path

    names = "age workclass fnlwgt education education.num marital.status occupation relationship race sex"
    names += " capital.gain capital.loss hours.per.week native.country income"
    lines = (Path(os.environ["LEAKGAUGE_DATA"]) / "adult" / "adult.data").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.count(",") == 14][skip : skip + count]
    columns = list(zip(*rows, strict=True))
    number = {"age", "fnlwgt", "education.num", "capital.gain", "capital.loss", "hours.per.week"}
    return {
        name: [int(cell) for cell in column] if name in number else list(column)
        for name, column in zip(names.split(), columns, strict=True)
    }


_TABLES: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "uoft-cs/cifar10": _table_of_pictures("img", "cifar10"),
    "zalando-datasets/fashion_mnist": _table_of_pictures("image", "mnist"),
    "ylecun/mnist": _table_of_pictures("image", "mnist"),
    "stanfordnlp/imdb": _reviews,
    "vicgalle/alpaca-gpt4": _instructions,
    "scikit-learn/adult-census-income": _census,
}


def _load_dataset(path: str, *_: Any, split: str | None = None, **__: Any) -> Any:
    import datasets

    if path not in _TABLES:
        raise ValueError(f"no stand-in for the data set {path!r}")

    def made(count: int, skip: int) -> Any:
        rows = _TABLES[path](count, skip)
        held = {n: datasets.Image() for n, v in rows.items() if hasattr(v[0], "save")}
        plain = datasets.Dataset.from_dict({n: v for n, v in rows.items() if n not in held}).features
        return datasets.Dataset.from_dict(rows, features=datasets.Features({**plain, **held}))

    parts = datasets.DatasetDict({"train": made(samples(), 0), "test": made(20, samples())})
    return parts if split is None else parts[split]


def _patch_datasets(module: Any) -> None:
    module.load_dataset = _load_dataset


# --- torchvision ----------------------------------------------------------------------------------------------------


def _before_torchvision() -> None:
    """A build for another torch lacks its compiled operators; nothing here needs them, so they are not declared."""
    import torch

    register = torch.library.register_fake

    def tolerant(name: Any, function: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not str(name).startswith("torchvision::") or function is not None:
            return register(name, function, *args, **kwargs)

        def decorate(own: Any) -> Any:
            try:
                return register(name, *args, **kwargs)(own)
            except RuntimeError:
                return own

        return decorate

    torch.library.register_fake = tolerant


def _patch_torchvision(module: Any) -> None:
    class CIFAR10(module.VisionDataset):  # type: ignore[misc,name-defined]
        def __init__(self, root: Any, train: bool = True, transform: Any = None, *_: Any, **__: Any) -> None:
            super().__init__(str(root), transform=transform if callable(transform) else None)
            count = samples() if train else 20
            self.data, self.targets = pictures("cifar10", count, 0 if train else samples())

        def __len__(self) -> int:
            return len(self.targets)

        def __getitem__(self, index: int) -> Any:
            from PIL import Image

            image = Image.fromarray(self.data[index])
            return (image if self.transform is None else self.transform(image)), self.targets[index]

    module.CIFAR10 = CIFAR10


# --- transformers, evaluate -----------------------------------------------------------------------------------------


def _tokenizer(*_: Any, **given: Any) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = sorted({"the", "was", "describe", *_TOPICS, *_GOOD, *_BAD})
    table = {word: place for place, word in enumerate([*special, *words])}
    own = Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
        model_max_length=given.get("model_max_length", 512),
        model_input_names=["input_ids", "attention_mask"],
    )


def _patch_auto_models(module: Any) -> None:
    def from_pretrained(cls: Any, *_: Any, **given: Any) -> Any:
        import torch
        import transformers

        torch.manual_seed(0)
        size = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
        if "SequenceClassification" in cls.__name__:
            config = transformers.BertConfig(
                **size, intermediate_size=64, max_position_embeddings=64, num_labels=given.get("num_labels", 2)
            )
        else:
            config = transformers.LlamaConfig(**size, intermediate_size=64, max_position_embeddings=64)
        return cls.from_config(config)

    module._BaseAutoModelClass.from_pretrained = classmethod(from_pretrained)


def _patch_auto_tokenizers(module: Any) -> None:
    module.AutoTokenizer.from_pretrained = staticmethod(_tokenizer)


def _patch_evaluate(module: Any) -> None:
    class Accuracy:
        def __init__(self) -> None:
            self.right = self.seen = 0

        def add_batch(self, predictions: Any, references: Any) -> None:
            self.right += int((predictions == references).sum())
            self.seen += len(references)

        def compute(self) -> dict[str, float]:
            return {"accuracy": self.right / max(1, self.seen)}

    module.load = lambda *_: Accuracy()


def _nothing() -> None:
    pass


def _patch_flower_types(module: Any) -> None:
    """A name that apps written for Flower 1.27 import, and that 1.41 keeps elsewhere."""
    if not hasattr(module, "UserConfig"):
        module.UserConfig = dict


_PATCHES: dict[str, tuple[Callable[[], None], Callable[[Any], None]]] = {
    "datasets": (_nothing, _patch_datasets),
    "torchvision": (_before_torchvision, lambda _: None),
    "torchvision.datasets": (_nothing, _patch_torchvision),
    "flwr.common.typing": (_nothing, _patch_flower_types),
    "evaluate": (_nothing, _patch_evaluate),
    "transformers.models.auto.auto_factory": (_nothing, _patch_auto_models),
    "transformers.models.auto.tokenization_auto": (_nothing, _patch_auto_tokenizers),
}
