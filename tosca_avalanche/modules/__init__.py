"""Plain torch parts: LuCA, its bank, the cosine head, prototypes, and the nets made of them."""

from tosca_avalanche.modules.adapters import AdaptedViT, AdapterSet
from tosca_avalanche.modules.bank import ModuleBank
from tosca_avalanche.modules.class_means import ClassMeans
from tosca_avalanche.modules.codaprompt_net import CODAPromptNet
from tosca_avalanche.modules.cosine_head import CosineHead
from tosca_avalanche.modules.dualprompt_net import DualPromptNet
from tosca_avalanche.modules.ease_net import EASENet
from tosca_avalanche.modules.finetune_net import FinetuneNet
from tosca_avalanche.modules.gaussian import SharedGaussian
from tosca_avalanche.modules.incremental import IncrementalNet
from tosca_avalanche.modules.l2p_net import L2PNet
from tosca_avalanche.modules.linear_head import LinearHead
from tosca_avalanche.modules.luca import LuCA
from tosca_avalanche.modules.mos_net import MOSNet
from tosca_avalanche.modules.prototype_net import APERNet, PrototypeNet
from tosca_avalanche.modules.prototypes import Prototypes
from tosca_avalanche.modules.ranpac_net import RanPACNet
from tosca_avalanche.modules.slda_net import SLDANet
from tosca_avalanche.modules.tosca_net import ROUTED, ToscaNet

__all__ = [
    "ROUTED",
    "APERNet",
    "AdaptedViT",
    "AdapterSet",
    "CODAPromptNet",
    "ClassMeans",
    "CosineHead",
    "DualPromptNet",
    "EASENet",
    "FinetuneNet",
    "IncrementalNet",
    "L2PNet",
    "LinearHead",
    "LuCA",
    "MOSNet",
    "ModuleBank",
    "PrototypeNet",
    "Prototypes",
    "RanPACNet",
    "SLDANet",
    "SharedGaussian",
    "ToscaNet",
]
