"""The nouns that travel from `Scenario` to `AuditReport`. Frozen; each says what it holds and its shapes.

T is the trials axis: victims that are attacked side by side and never mix. N is the number of private
samples behind one update. One victim is T = 1.
"""

from leakgauge.types.attack import (
    BLANK,
    NO_LABEL,
    Attack,
    Known,
    Progress,
    Reconstruction,
    TamperingServer,
    no_progress,
)
from leakgauge.types.belonging import Belonging
from leakgauge.types.client import (
    CROSS_ENTROPY,
    NLL_ON_LOGITS,
    Batch,
    DataSpec,
    Federation,
    LocalTraining,
    Partition,
    SharedUpdate,
    Step,
    Training,
)
from leakgauge.types.defense import Defense, Guarantee
from leakgauge.types.finding import (
    NOT_APPLICABLE,
    UNDEFENDED,
    Control,
    Exposure,
    Finding,
    Flag,
    Interval,
    Rate,
    Summary,
    Tail,
    cell_name,
)
from leakgauge.types.knowledge import ORACLES, THREAT_MODELS, Fact, Observation, ThreatModel, threat_model
from leakgauge.types.ledger import Ablation, Skipped
from leakgauge.types.report import REPORT_SCHEMA, SCHEMA, AuditReport, Cost, Costs, Pictures
from leakgauge.types.scenario import PRECISIONS, SECTIONS, SUITE_NAMES, Scenario
from leakgauge.types.triage import Clue
from leakgauge.types.verdict import (
    ConfigurationVerdict,
    GateResult,
    LabelsRead,
    LowerSide,
    Proven,
    Traces,
    TrainingBound,
    UpperSide,
    Verdict,
)

__all__ = [
    "BLANK",
    "CROSS_ENTROPY",
    "NLL_ON_LOGITS",
    "NOT_APPLICABLE",
    "NO_LABEL",
    "ORACLES",
    "PRECISIONS",
    "REPORT_SCHEMA",
    "SCHEMA",
    "SECTIONS",
    "SUITE_NAMES",
    "THREAT_MODELS",
    "UNDEFENDED",
    "Ablation",
    "Attack",
    "AuditReport",
    "Batch",
    "Belonging",
    "Clue",
    "ConfigurationVerdict",
    "Control",
    "Cost",
    "Costs",
    "DataSpec",
    "Defense",
    "Exposure",
    "Fact",
    "Federation",
    "Finding",
    "Flag",
    "GateResult",
    "Guarantee",
    "Interval",
    "Known",
    "LabelsRead",
    "LocalTraining",
    "LowerSide",
    "Observation",
    "Partition",
    "Pictures",
    "Progress",
    "Proven",
    "Rate",
    "Reconstruction",
    "Scenario",
    "SharedUpdate",
    "Skipped",
    "Step",
    "Summary",
    "Tail",
    "TamperingServer",
    "ThreatModel",
    "Traces",
    "Training",
    "TrainingBound",
    "UpperSide",
    "Verdict",
    "cell_name",
    "no_progress",
    "threat_model",
]
