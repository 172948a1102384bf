"""Keys once for all tests; the short ones protect nothing."""

import pytest

from leakgauge.federation.encryption.ckks import Ckks
from leakgauge.federation.encryption.paillier import Paillier


@pytest.fixture(scope="session")
def demo_keys():
    return Paillier(bits=256, insecure_demo=True).keys()


@pytest.fixture(scope="session")
def ckks_keys():
    return Ckks().keys()


@pytest.fixture(params=["paillier", "ckks"])
def keys(request, demo_keys, ckks_keys):
    return demo_keys if request.param == "paillier" else ckks_keys


@pytest.fixture
def scheme(keys):
    return keys.scheme
