"""`leakgauge audit --init`: a scenario file with every key and a word on each, valid as it is."""

from __future__ import annotations

from pathlib import Path

from leakgauge.errors import BadInput
from leakgauge.reading.files import write_whole

TEMPLATE = """# A scenario for `leakgauge audit`. Every key is here; what is commented out is optional.
# Flags on the command line override single keys. Paths are relative to the folder you run the command in.

# --- What is attacked -------------------------------------------------------------------------------
model = "lenet-dlg"         # a name (leakgauge list models), FILE.py:FACTORY or PACKAGE.MODULE:FACTORY
# weights = "model.pt"      # the parameters that the client started from; left out: fresh from the seed
data = "digits"             # a name (leakgauge list data), FOLDER, FILE.npz or FILE.py:FACTORY
batch_size = 1              # private samples behind one update
batch_labels = "any"        # labels within one batch: "any", "distinct" or "same"
trials = 2                  # victims, attacked side by side; more trials, narrower intervals
seed = 0                    # of the model, the victims, the defenses and the attacks
precision = "float32"       # "float32", "tf32" (a GPU's rounded products) or "float64"

# --- An update of your own system, instead of a simulated client ------------------------------------
# update = "update.pt"      # .safetensors, .npz, or .pt/.pth with tensors only: parameter name -> tensor
#   It can also be the folder that a recorder wrote: its clients are attacked side by side.
# round = 1                 # then: those of which round; left out: the earliest that was recorded
# blind = false             # true: `data` holds no sample behind the update; nothing is scored then
#   With `update`, `data` is the batch behind it (FILE.py:FACTORY or FILE.npz): batch_size and trials follow from it.

# --- Who attacks, and with what ---------------------------------------------------------------------
threat_model = "honest-but-curious"  # or eavesdropper, malicious-parameters, malicious-architecture
shared_layers = "all"       # layers whose tensors are seen: "first:2", "last:1" or names, "conv1+fc"
suite = "quick"             # about 1 minute; "standard" 10 minutes, "full" 2 hours
# attacks = ["linear", "inverting-gradients:steps=2000"]  # these instead of a suite
variants = "both"           # attackers who know the defense ("adaptive"), who do not ("plain"), or "both"
# assume = "prune:share=0.5"  # what informed attackers take for the defense; left out: they know the true one
ledger = false              # true: run the strongest attack again with each assumption changed

# --- What is compared, and when the audit fails -----------------------------------------------------
defenses = []               # for example ["gaussian:std=0.01", "clip:norm=1+gaussian:std=0.1"]
metrics = []                # scores besides mse, psnr and ssim: ["mae"]
# gate = "ssim=0.5"         # exit with 1 if a record under test reaches this

[local]                     # what the client does before it shares
kind = "fedsgd"             # "fedsgd": one mean gradient; "fedavg": local steps, weights after minus before
epochs = 1                  # local passes over the samples (fedavg)
batch_size = 0              # local mini-batch, 0 for all samples at once (fedavg)
lr = 0.01                   # local learning rate (fedavg)
batchnorm = "eval"          # BatchNorm uses running ("eval") or the batch's own ("train") statistics
loss = "cross-entropy"      # or "nll-on-logits", which forgets the softmax
seen = 1                    # rounds with the same samples and weights that an attacker sees

[partition]                 # who holds which samples
kind = "none"               # "none": one pool; "iid", "classes" or "dirichlet": shares
clients = 10                # number of shares
classes = 2                 # labels per client (classes)
alpha = 0.5                 # concentration, small is skewed (dirichlet)

[training]                  # what the global model went through before the update is taken
rounds = 0                  # rounds of FedSGD on public samples; 0 leaves the model as it starts
clients = 10                # clients whose gradients are averaged in a round
batch_size = 32             # samples behind each client's gradient
optimizer = "adam"          # or "sgd", "nesterov"
lr = 0.01                   # the server's learning rate
policy = ""                 # train on pictures changed by this policy, such as "3-1-7"
augment = false             # move and mirror the pictures of the training
"""


def write_template(path: Path) -> None:
    """The commented scenario; what is there already is left alone."""
    if path.exists():
        raise BadInput(
            f"file {str(path)!r}",
            allowed="a name that is free",
            got="an existing file",
            do="choose another name: leakgauge audit --init other.toml",
        )
    write_whole(path, TEMPLATE.encode())
