"""Table 5.7: what is shared of key and lock besides the update."""

from __future__ import annotations

from leakgauge.lab.recipes.ren2022fedkl._cells import (
    CONVENTION,
    GRNN,
    LOCKS,
    NAMES,
    SEARCH,
    SERVERS_LOCKS,
    TILED,
    attacked,
    quality,
    variant,
)
from leakgauge.lab.reproduce.recipe import Cell, Table

_SHARED = {"nothing": "nothing", "key": "key", "lock": "gradient", "both": "key-and-gradient"}
_STEPS = f"{TILED},steps=100"
_GRNN_LARGE = f"{GRNN},tv=1e-06"
_NETWORKS = {  # name -> network, data sets, victims under matching and under GRNN, GRNN
    "LeNet": ("lenet-dlg", ("mnist:size=32", "cifar10", "cifar100"), 50, 20, GRNN),
    "ResNet-20": ("resnet20:activation=sigmoid", ("mnist:size=32", "cifar10", "cifar100"), 0, 10, _GRNN_LARGE),
    "ResNet-18": ("resnet18-grnn", ("cifar10:size=256", "cifar100:size=256", "photos64:size=256"), 0, 4, _GRNN_LARGE),
}


def _cells() -> tuple[Cell, ...]:
    found = []
    for network, (model, sets, matched, painted, grnn) in _NETWORKS.items():
        attackers = (
            ("matching", _STEPS, SEARCH, matched),
            ("matching, key not read", _STEPS, None, matched),
            ("GRNN", grnn, SEARCH, painted),
            ("GRNN, key not read", grnn, None, painted),
        )
        for data in sets:
            for shared, told in _SHARED.items():
                for column, attack, way, victims in attackers:
                    if not victims or ("not read" in column and shared not in ("nothing", "lock")):
                        continue
                    lock = f"{SERVERS_LOCKS['identity']},told={told}"
                    quick = 2 if (network, data, shared, column) == ("LeNet", "cifar10", "lock", "matching") else 0
                    found.append(
                        Cell(
                            f"{network}, {NAMES.get(data) or NAMES[data.partition(':')[0]]}, {shared}",
                            column,
                            attacked(model, data, attack, lock, victims, way=way),
                            quality(),
                            variant(way),
                            quick=quick,
                            quick_attack=f"{TILED},steps=30",
                        )
                    )
    return tuple(found)


TABLE_7 = Table(
    "5.7",
    "what is shared of key and lock besides the update, one image per update",
    CONVENTION,
    "The thesis has pictures and no figures here, and says that the key alone lets GRNN succeed at 32 pixels, that "
    "the lock alone does not, and that both give the best pictures. *Lock* is the gradient of the lock layer, as its "
    "section 5.3.4 has it, and the server made the first lock and knows it. Whoever reads the key off that gradient "
    "by division (all columns but those that say otherwise) knows as much as one who was given it, so *lock* and "
    "*key* are one case: the claim that the lock alone does not help holds only for an attacker who does not divide. "
    "The linear lock is the text's. DLG never succeeds in the thesis; matching here is that attack with the label "
    "read off the last layer, from a repeated tile, 100 steps. GGL on ImageNet is not here: its generator is not ours "
    "to give. Contradicts the thesis for LeNet: with the first lock known, matching "
    "finds as much whatever is shared, nothing included, on MNIST, CIFAR-10 and CIFAR-100, and the lock's gradient is "
    "as good as the key; supports it for the attacker who does not divide. GRNN finds every picture of MNIST where "
    "nothing is shared; for its other cells and the ResNets it cannot tell, they were not run.",
    _cells(),
    heavy="GRNN has 20, 10 or 4 victims: minutes each on a GPU.",
)

TABLE_7_OWN = Table(
    "5.7-own-locks",
    "what the attacker is told of a key and a lock that the client drew itself, CIFAR-10 on LeNet",
    CONVENTION,
    "Not the protocol of the text: here every client draws its own first lock (`first_lock=client`), and *told lock* "
    "gives the values of that lock, not its gradient. A key without a lock says nothing about scale and shift, which "
    "are searched for as if nothing were told. A lock without a key leaves the key to be searched for; with more "
    "numbers in the key than in scale and shift that is the same problem in other coordinates. Cannot tell what the "
    "thesis claims: nothing is left to gain by being told, since the search finds a sigmoid lock by itself.",
    tuple(
        Cell(
            f"told {told}",
            f"{name}, length {length}",
            attacked("lenet-dlg", "cifar10", attack, f"{LOCKS['sigmoid']},length={length},told={told}", way=SEARCH),
            quality(),
            "adaptive",
            quick=1 if (told, name, length) == ("lock", "matching", 1024) else 0,
            quick_attack=f"{TILED},steps=60",
        )
        for name, attack in (("matching", TILED), ("GRNN", GRNN))
        for length in (1024, 8)
        for told in ("nothing", "key", "lock", "both")
    ),
)
