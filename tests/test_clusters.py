"""The files for clusters, checked offline: what a cloud would refuse is found here."""

from __future__ import annotations

import copy
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FILES = [
    ROOT / name
    for name in (
        "cluster.yaml",
        "clusters/aws-efs.yaml",
        "clusters/gcp.yaml",
        "clusters/local.yaml",
    )
]
# https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert
GCP_NODE = {
    "machineType",
    "disks",
    "scheduling",
    "guestAccelerators",
    "metadata",
    "serviceAccounts",
}
GCP_SCHEDULING = {"provisioningModel", "instanceTerminationAction", "onHostMaintenance"}


def read(path: Path) -> dict[str, Any]:
    data = yaml.safe_load(path.read_text())
    assert isinstance(data, dict)
    return data


def check(data: dict[str, Any]) -> dict[str, Any]:
    """Ray's own checks: unknown keys, wrong types, a bad head, impossible numbers of workers."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(copy.deepcopy(data))
    validate_config(prepared)
    return prepared


@pytest.fixture(scope="module")
def run_instances() -> Any:
    """The input of EC2's RunInstances, as botocore describes it, and its validator."""
    session = pytest.importorskip("botocore.session")
    from botocore.validate import ParamValidator

    shape = session.Session().get_service_model("ec2").operation_model("RunInstances").input_shape
    return lambda config: ParamValidator().validate(config, shape)


def ec2_errors(config: dict[str, Any], run_instances: Any) -> str:
    report = run_instances({"MinCount": 1, "MaxCount": 1, **config})
    known = {"InstanceType", "ImageId", "BlockDeviceMappings", "InstanceMarketOptions"}
    return str(report.generate_report()) + "".join(sorted(set(config) - known))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_ray_accepts_the_file(path: Path) -> None:
    data = read(path)
    prepared = check(data)
    types = prepared["available_node_types"]
    if data["provider"]["type"] != "local":
        assert types[prepared["head_node_type"]]["resources"]["CPU"] == 0
        workers = [node for name, node in types.items() if name != prepared["head_node_type"]]
        assert all(node["min_workers"] == 0 for node in workers), "an idle cluster bills its head"
        assert any("GPU" in node["resources"] for node in workers)
        assert data["provider"]["cache_stopped_nodes"] is False


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_gets_in_without_the_token(path: Path) -> None:
    data = read(path)
    starts = [
        command
        for part in ("head_start_ray_commands", "worker_start_ray_commands")
        for command in data[part]
        if "ray start" in command
    ]
    assert len(starts) == 2
    assert all(
        "RAY_AUTH_MODE=token ray start" in s or "RAY_AUTH_MODE=token RAY_enable" in s
        for s in starts
    )
    assert "--dashboard-host=127.0.0.1" in starts[0]
    assert data["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    assert "chmod 600 ~/.ray/auth_token" in data["setup_commands"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (("max_worker",), 3),
        (("max_workers",), "three"),
        (("head_node_type",), "leader"),
        (("available_node_types", "cpu_worker", "min_workers"), 99),
    ],
)
def test_ray_refuses_what_is_wrong(key: tuple[str, ...], value: Any) -> None:
    data = read(ROOT / "cluster.yaml")
    place = data
    for name in key[:-1]:
        place = place[name]
    place[key[-1]] = value
    with pytest.raises(Exception, match=r".+"):
        check(data)


@pytest.mark.parametrize("name", ["cluster.yaml", "clusters/aws-efs.yaml"])
def test_aws_knows_every_setting_of_a_node(name: str, run_instances: Any) -> None:
    for node in read(ROOT / name)["available_node_types"].values():
        assert ec2_errors(node["node_config"], run_instances) == ""


def test_a_typo_in_a_node_is_found(run_instances: Any) -> None:
    node = read(ROOT / "cluster.yaml")["available_node_types"]["cpu_worker"]["node_config"]
    assert "InstanceTyp" in ec2_errors({**node, "InstanceTyp": "c7i.large"}, run_instances)
    wrong = {**node, "InstanceMarketOptions": {"MarketTyp": "spot"}}
    assert "MarketTyp" in ec2_errors(wrong, run_instances)


def test_the_nodes_of_gcp_have_the_form_of_its_api() -> None:
    for name, node in read(ROOT / "clusters" / "gcp.yaml")["available_node_types"].items():
        config = node["node_config"]
        assert set(config) <= GCP_NODE, name
        assert isinstance(config["machineType"], str)
        assert set(config.get("scheduling", {})) <= GCP_SCHEDULING
        (disk,) = config["disks"]
        assert (disk["boot"], disk["autoDelete"]) == (True, True), (
            "a disk that stays goes on billing"
        )
        assert disk["initializeParams"]["sourceImage"].startswith("projects/")


def test_kubernetes_has_the_form_of_kuberay() -> None:
    data = read(ROOT / "clusters" / "kuberay.yaml")
    assert (data["apiVersion"], data["kind"]) == ("ray.io/v1", "RayCluster")
    spec = data["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    assert len({group["groupName"] for group in groups[1:]}) == len(groups) - 1
    for group in groups:
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert {"name": "RAY_AUTH_MODE", "value": "token"} in container["env"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
    for group in groups[1:]:
        assert group["minReplicas"] == group["replicas"] == 0 < group["maxReplicas"]
    token = next(v for v in pod["volumes"] if v["name"] == "token")
    assert token["secret"]["defaultMode"] == 0o400


def test_the_script_for_slurm_is_bash() -> None:
    path = ROOT / "clusters" / "slurm.sh"
    assert path.stat().st_mode & stat.S_IXUSR
    subprocess.run(["bash", "-n", str(path)], check=True, env=dict(os.environ))
    lines = path.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    last = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert last < first, "Slurm reads no #SBATCH after the first command"
