"""Which apps are run, what their users would say of them, and what had to be replaced here."""

from __future__ import annotations

from dataclasses import dataclass, field

ROUND = "labels linear inverting-gradients:steps=100"  # closed forms and one search


@dataclass(frozen=True)
class App:
    """One app: `lines` are what its user writes to score a recorded round, besides the three that record it."""

    name: str
    folder: str  # below the folder of its framework's examples
    optimizer: str  # as its source says
    replaced: str
    model: str  # as --model
    local: str  # as --local, without kind
    lines: str = ""  # truth.py
    blind: str = ""  # --data of an audit without the truth: samples that training changes at random cannot be given
    samples: int = 0  # of each client, where the app says another number than it trains on
    framework: str = "flower"
    nodes: int = 3
    total: int = 120  # training samples of all clients
    config: dict[str, object] = field(default_factory=dict)  # as --run-config, or arguments of job.py
    attacks: str = ROUND  # against the recorded round; the simulated sample meets the quick suite
    flags: tuple[str, ...] = ()
    simulated: str = ""  # the app's own data and training, as --data and --client
    note: str = ""


def truth(module: str, call: str, each: str = "range(3)", rest: str = "") -> str:
    head = f"from {module} import load_data\n"
    return f"{head}def samples():\n    return [load_data({call})[0] for i in {each}]\n{rest}"


CIFAR10 = "CIFAR-10 by 120 of its pictures from disk"
MNIST = "Fashion-MNIST by MNIST, 120 pictures"
FLARE = "data.cifar10_data_utils:create_datasets:site_name=site-1,train_idx_root=/tmp/cifar10_splits/cifar10_{}_{}"


def flare(name: str, optimizer: str, local: str, note: str) -> App:
    return App(
        f"NVFlare cifar10 {name}",
        f"advanced/cifar10/pt/cifar10-sim/cifar10_{name}",
        optimizer,
        "CIFAR-10 by 32 of its pictures",
        "model.py:ModerateCNN",
        f"lr=0.05,momentum=0.9,batch_size=64,epochs=4,schedule=cosine,order=shuffled{local}",
        blind=FLARE.format(name, "1sites_alpha1.00_seed0"),
        framework="nvflare",
        nodes=1,
        total=32,
        config={"n_clients": 1, "num_rounds": 1, "num_workers": 0, "alpha": 1.0},
        attacks="labels inverting-gradients:steps=10",
        note=note,
    )


APPS = (
    App(
        "quickstart-pytorch",
        "quickstart-pytorch",
        "SGD, momentum 0.9, lr 0.1",
        CIFAR10,
        "pytorchexample.task:Net",
        "lr=0.1,momentum=0.9,batch_size=32,order=shuffled",
        truth("pytorchexample.task", "i, 3, 32"),
        simulated="pytorchexample.task:load_data:partition_id=0,num_partitions=1,batch_size=32 "
        "pytorchexample.task:train,lr=0.1,momentum=0.9",
    ),
    App(
        "advanced-pytorch",
        "advanced-pytorch",
        "SGD, momentum 0.9, lr 0.1",
        f"{MNIST}; wandb by nothing; a type name that Flower 1.41 moved",
        "pytorch_example.task:Net",
        "lr=0.1,momentum=0.9,batch_size=32,order=shuffled",
        blind="pytorch_example.task:load_data:partition_id=0,num_partitions=3",
        config={"fraction-train": 1.0},
        simulated="pytorch_example.task:load_data:partition_id=0,num_partitions=1 "
        "pytorch_example.task:train,lr=0.1,momentum=0.9",
        note="crops and mirrors at random",
    ),
    App(
        "quickstart-huggingface",
        "quickstart-huggingface",
        "AdamW, lr 5e-5",
        "IMDB by 120 sentences of its form; the hub's BERT by one of 2 layers, 32 wide",
        "huggingface_example.task:get_model:model_name=tiny",
        "lr=5e-5,optimizer=adamw,weight_decay=0.01,batch_size=32,order=shuffled",
        truth("huggingface_example.task", 'i, 3, "tiny"'),
        samples=32,
        simulated="huggingface_example.task:load_data:partition_id=0,num_partitions=1,model_name=tiny "
        "huggingface_example.task:train_fn,lr=5e-5,optimizer=adamw,weight_decay=0.01",
        note="num-examples counts batches, so the recorder notes 1 sample: give --batch-size 32",
    ),
    App(
        "fl-tabular",
        "fl-tabular",
        "Adam, lr 0.001",
        "Adult by 120 of its rows from disk",
        "fltabular.task:IncomeClassifier",
        "lr=0.001,optimizer=adam,batch_size=32,order=shuffled,loss=truth.py:loss",
        truth(
            "fltabular.task",
            "i, 3",
            rest="from torch.nn.functional import binary_cross_entropy as loss  # the model ends in a sigmoid\n",
        ),
        samples=32,
        simulated="fltabular.task:load_data:partition_id=0,num_partitions=1 "
        "fltabular.task:trainer,lr=0.001,optimizer=adam,loss=truth.py:loss",
        note="num-examples counts batches: give --batch-size",
    ),
    App(
        "flowertune-llm",
        "flowertune-llm",
        "AdamW, lr 5e-5, on LoRA of rank 32; one step",
        "Alpaca by 24 lines of its form; the 3B Llama in 4 bits by one of 2 layers, 32 wide, in float32; trl 0.8",
        "truth.py:model",
        "lr=5e-5,optimizer=adamw,batch_size=16,clip=1.0,order=shuffled",
        "from omegaconf import OmegaConf\n"
        "from flowertune_llm.dataset import formatting_prompts_func as form, load_data\n"
        "from flowertune_llm.dataset import get_tokenizer_and_data_collator_and_propt_formatting as parts\n"
        "from flowertune_llm.models import get_model\n"
        'LORA = {"peft_lora_r": 32, "peft_lora_alpha": 64}\n'
        "def model():\n"
        '    own = {"name": "", "quantization": 4, "gradient_checkpointing": True, "lora": LORA}\n'
        "    return get_model(OmegaConf.create(own))\n"
        "def samples():\n"
        '    tokenizer, collate, _ = parts("")\n'
        '    texts = [t for i in range(2) for t in form(load_data(i, 2, "vicgalle/alpaca-gpt4")[:])]\n'
        '    made = collate([tokenizer(text)["input_ids"] for text in texts])\n'
        '    labels = made.pop("labels")\n'
        "    return {k: v.numpy() for k, v in made.items()}, labels.roll(-1, 1).numpy()\n",
        nodes=2,
        total=8,
        config={
            "strategy.fraction-train": 1.0,
            "train.training-arguments.max-steps": 1,
            "train.learning-rate-min": 5e-5,
            "train.training-arguments.learning-rate": 0.0,
            "train.training-arguments.gradient-checkpointing": False,
            "model.gradient-checkpointing": False,
        },
        note="the labels of a causal model are its tokens, moved by one inside: the lines do so outside",
    ),
    App(
        "opacus",
        "opacus",
        "DP-SGD, momentum 0.9, lr 0.001, noise 1 and 1.5",
        CIFAR10,
        "opacus_fl.task:Net",
        "lr=0.001,momentum=0.9,batch_size=32,order=shuffled",
        truth("opacus_fl.task", "i, 3"),
        flags=("--defenses", "dp-sgd:norm=1,sigma=1,q=1,rounds=1,delta=1e-5"),
        note="draws its batch by chance (Poisson); attacked as if it did not",
    ),
    App(
        "quickstart-pytorch-lightning",
        "quickstart-pytorch-lightning",
        "Adam, lr 0.001",
        "MNIST by 120 of its pictures",
        "truth.py:Whole",
        "lr=0.001,optimizer=adam,batch_size=32,order=shuffled,loss=mse",
        "import torch\n"
        "from pytorchlightning_example.task import LitAutoEncoder, load_data\n"
        "class Whole(LitAutoEncoder):\n"
        "    def forward(self, x):\n"
        "        return self.decoder(self.encoder(x.flatten(1)))\n"
        "def samples():\n"
        '    x = [load_data(i, 3)[0].dataset[:]["image"] for i in range(3)]\n'
        "    rows = torch.cat([torch.stack(part) for part in x])\n"
        "    return rows, rows.flatten(1)\n",
        note="forward gives the code alone, training compares the picture: two lines join them",
    ),
    App(
        "quickstart-monai",
        "quickstart-monai",
        "Adam, lr 1e-5",
        "MedNIST by 60 digits of 64 pixels in its folders",
        "monaiexample.task:load_model",
        "lr=1e-5,optimizer=adam,batch_size=8,order=shuffled,batchnorm=train",
        blind="monaiexample.task:load_data:num_partitions=3,partition_id=0,batch_size=8",
        samples=16,
        total=60,
        config={"batch-size": 8, "fraction-train": 1.0},
        attacks="labels inverting-gradients:steps=3",
        note="DenseNet-121; turns and mirrors at random; num-examples counts batches: give --batch-size",
    ),
    App(
        "NVFlare hello-pt",
        "hello-world/hello-pt",
        "SGD, momentum 0.9, lr 0.01",
        "its own --synthetic_data",
        "model.py:SimpleNetwork",
        "lr=0.01,momentum=0.9,batch_size=16,epochs=2,order=shuffled",
        "from torchvision.datasets import FakeData\n"
        "from torchvision.transforms import Compose, Normalize, ToTensor\n"
        "def samples():\n"
        "    form = Compose([ToTensor(), Normalize((0.5,) * 3, (0.5,) * 3)])\n"
        "    return [FakeData(32, (3, 32, 32), 10, form)] * 2\n",
        framework="nvflare",
        nodes=2,
        config={
            "n_clients": 2,
            "num_rounds": 1,
            "num_workers": 0,
            "synthetic_data": True,
            "train_size": 32,
            "test_size": 16,
        },
        note="the data are made inside main(), so the lines repeat them; both clients hold the same pictures",
    ),
    flare("fedavg", "SGD, momentum 0.9, lr 0.05, cosine", "", "dropout, crops and mirrors at random"),
    flare("fedprox", "the same, mu 0.01", ",proximal=0.01", "dropout, crops and mirrors at random"),
    flare("scaffold", "the same, control variates", "", "first round: the control variates are zero"),
)
