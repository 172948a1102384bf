"""What `ModelSpec.build` promises for every model of the zoo."""

import dataclasses

import pytest
import torch
from torch import nn

from leakgauge import catalog
from leakgauge.errors import BadInput, NotApplicable
from leakgauge.models import ModelSpec, load_model
from leakgauge.models.layers import ACTIVATIONS, Normalize

TINY = {  # every model of the zoo, small enough to build in a blink
    "cnn-melis": "cnn-melis:width=2,hidden=5",
    "cnn6": "cnn6",
    "cnn6-d": "cnn6-d",
    "convnet": "convnet:width=2",
    "convnet9": "convnet9:width=2",
    "lenet-cpl": "lenet-cpl:filters=3",
    "lenet-dlg": "lenet-dlg:filters=3",
    "lenet5-grnn": "lenet5-grnn",
    "lenet5-mkor": "lenet5-mkor",
    "mkor-modified": "mkor-modified",
    "mlp": "mlp:hidden=5",
    "mlp-precode": "mlp-precode:hidden=5",
    "resnet18": "resnet18:width=2",
    "resnet18-grnn": "resnet18-grnn:width=2",
    "resnet20": "resnet20:width=2",
    "resnet20-4": "resnet20-4:width=2",
    "resnet32": "resnet32:width=2",
    "resnet34": "resnet34:width=2",
    "vgg16-bn": "vgg16-bn:width=2,hidden=8",
    "vgg16-mkor": "vgg16-mkor:width=2,hidden=8",
    "vit": "vit:patch=1,embedding=4,depth=1,heads=2",
}


def add(spec: str, field: str) -> str:
    return f"{spec}{',' if ':' in spec else ':'}{field}"


def test_every_model_of_the_zoo_is_checked_here():
    assert sorted(TINY) == list(catalog.find("models"))
    assert all(issubclass(spec, ModelSpec) for spec in catalog.find("models").values())


@pytest.mark.parametrize("spec", TINY.values(), ids=TINY)
class TestEveryModel:
    def test_gives_one_logit_per_class_in_eval_mode(self, spec, image):
        model = load_model(spec, image(3, 32, 7), seed=0)
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, 7)
        assert not model.training
        assert all(p.requires_grad for p in model.parameters())

    @pytest.mark.parametrize(("channels", "side"), [(1, 28), (1, 32), (3, 50)])
    def test_other_shapes_work_or_are_refused(self, spec, image, channels, side):
        data = image(channels, side, 4)
        if side < 32 and spec.startswith(("resnet18:", "resnet34:", "vgg16")):
            with pytest.raises(NotApplicable, match="at least 32x32"):
                load_model(spec, data, seed=0)
        else:
            assert load_model(spec, data, seed=0)(torch.rand(2, *data.shape)).shape == (2, 4)

    def test_oblong_images_work(self, spec, image):
        data = dataclasses.replace(image(), shape=(3, 33, 47))
        assert load_model(spec, data, seed=0)(torch.rand(1, 3, 33, 47)).shape == (1, 10)

    def test_tiny_images_work_or_are_refused_with_what_fits(self, spec, image):
        data = image(1, 8)
        if spec.startswith(("cnn-melis", "convnet", "lenet5-mkor", "resnet18:", "resnet34:", "vgg16")):
            with pytest.raises(NotApplicable, match=r"at least .*'lenet-dlg', 'resnet20' and 'mlp' take small"):
                load_model(spec, data, seed=0)
        else:
            assert load_model(spec, data, seed=0)(torch.rand(2, 1, 8, 8)).shape == (2, 10)

    def test_tables_are_refused_except_by_the_mlp(self, spec, table):
        if spec.startswith("mlp"):
            assert load_model(spec, table, seed=0)(torch.rand(4, 30)).shape == (4, 2)
        else:
            with pytest.raises(NotApplicable, match=r"needs images.*\(30,\).*'mlp'"):
                load_model(spec, table, seed=0)

    def test_the_seed_alone_decides_the_parameters(self, spec, image):
        one, again, other = (load_model(spec, image(), seed=s).state_dict() for s in (3, 3, 4))
        assert all(torch.equal(one[n], again[n]) for n in one)
        weights = [n for n in one if n.endswith("weight") and one[n].dim() > 1]
        assert not any(torch.equal(one[n], other[n]) for n in weights)

    def test_the_global_random_stream_is_untouched(self, spec, image):
        before = torch.get_rng_state()
        load_model(spec, image(), seed=1)
        assert torch.equal(before, torch.get_rng_state())

    def test_uniform_initialisation_fills_its_range_everywhere(self, spec, image):
        model = load_model(add(spec, "init=uniform"), image(), seed=0)
        values = torch.cat([p.flatten() for p in model.parameters()])
        assert values.min() >= -0.5
        assert values.max() < 0.5
        assert values.std().item() == pytest.approx(12**-0.5, rel=0.1)
        assert all(p.unique().numel() > 1 for p in model.parameters() if p.numel() > 2)

    def test_normalisation_is_a_first_layer_and_changes_no_name(self, spec, image):
        data = image(3, 32)
        plain = load_model(add(spec, "normalize=none"), data, seed=0)
        normal = load_model(add(spec, "normalize=data"), data, seed=0)
        assert list(plain.state_dict()) == list(normal.state_dict())
        x = torch.rand(2, 3, 32, 32)
        mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in (data.mean, data.std))
        torch.testing.assert_close(normal(x), plain((x - mean) / std))

    def test_no_activation_works_in_place(self, spec, image):
        modules = load_model(spec, image(), seed=0).modules()
        assert not any(getattr(m, "inplace", False) for m in modules)

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_every_activation_can_be_chosen(self, spec, image, activation):
        model = load_model(add(spec, f"activation={activation}"), image(), seed=0)
        assert torch.isfinite(model(torch.rand(1, 3, 32, 32))).all()


AUTO = ("convnet", "convnet9", "resnet18", "resnet20", "resnet20-4", "resnet32", "resnet34", "vgg16-bn")
UNIFORM = ("lenet-cpl", "lenet-dlg", "lenet5-grnn", "resnet18-grnn")


@pytest.mark.parametrize("name", TINY)
def test_defaults_are_the_papers(name):
    spec = catalog.build("models", name)
    assert spec.normalize == ("auto" if name in AUTO else "none")
    assert spec.init == ("uniform" if name in UNIFORM else "default")
    sigmoid = name.startswith("lenet") or name == "resnet18-grnn"
    leaky = name.startswith("cnn6")
    assert spec.activation == ("sigmoid" if sigmoid else "leaky_relu" if leaky else "relu")


def test_auto_normalises_only_with_constants(image):
    with_constants = load_model("convnet:width=2", image(3), seed=0)
    without = load_model("convnet:width=2", image(3, constants=False), seed=0)
    assert isinstance(with_constants[0], Normalize)
    assert isinstance(without[0], nn.Conv2d)


def test_normalisation_that_was_asked_for_without_constants_is_refused(image):
    with pytest.raises(BadInput, match=r"normalize=data must be .*0 means.*normalize=none"):
        load_model("lenet-dlg:normalize=data", image(1), seed=0)


def test_tables_normalise_per_feature(table):
    data = dataclasses.replace(table, mean=tuple([0.5] * 30), std=tuple([2.0] * 30))
    plain, normal = (load_model(f"mlp:normalize={n}", data, seed=0) for n in ("none", "data"))
    x = torch.rand(3, 30)
    torch.testing.assert_close(normal(x), plain((x - 0.5) / 2))
