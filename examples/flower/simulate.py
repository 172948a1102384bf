"""Run an app in Flower's simulation, unchanged, and record what its server sees.

python simulate.py recorded              the app as it is
python simulate.py recorded-noise 0.01   every client adds Gaussian noise to its update

`APP=cifar_app` takes the other app, `CLIENTS=4` fewer clients.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")  # Flower reads them once
here = Path(__file__).parent
sys.path.insert(0, str(here))
os.environ["PYTHONPATH"] = os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])  # for Ray's workers

from flwr.clientapp import ClientApp  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402

from leakgauge.defenses.gaussian import Gaussian  # noqa: E402
from leakgauge.execution.quiet_ray import quiet_ray  # noqa: E402
from leakgauge.integrations.flower import as_mod  # noqa: E402
from leakgauge.integrations.flower_recording import recorded_app  # noqa: E402

APP, CLIENTS = os.environ.get("APP", "digits_app"), int(os.environ.setdefault("CLIENTS", "10"))


def main(folder: str, std: float) -> None:
    theirs = import_module(f"{APP}.client_app")
    client = theirs.app
    if std:
        client = ClientApp(mods=[as_mod(Gaussian(std=std))])
        client.train()(theirs.fit)
    with quiet_ray():
        run_simulation(
            server_app=recorded_app(import_module(f"{APP}.server_app").app, folder),
            client_app=client,
            num_supernodes=CLIENTS,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}},
        )


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
