"""The files of deploy/ fit their schemas, the program that they start, and each other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click
import pytest

from encrypted_records import __version__
from encrypted_records.cli.main import ers
from encrypted_records.cli.settings import TABLE, read_config, variable
from tests.deploy.files import DEPLOY, ROOT, Unit, documents, walked

BIN = Path(sys.executable).parent
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
UNITS = {side: Unit(DEPLOY / "systemd" / f"ers-{side}.service") for side in ("api", "proxy")}
COMPOSE = documents(DEPLOY / "compose" / "compose.yaml")[0]
MANIFESTS = {path.stem: documents(path) for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))}
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
#: What our images are started with.
OURS = re.compile(r"encrypted-records-(api|proxy):(.+)")
#: Of these files alone, not settings of the service.
OF_CADDY = {"ERS_NAME", "ERS_UPSTREAM"}
DATA = "/var/lib/encrypted-records"
ALERTS = DEPLOY / "monitoring" / "alerts.yaml"


def options(command: str) -> set[str]:
    """The variables that a command takes."""
    found = ers.get_command(click.Context(ers), command)
    assert found is not None
    return {str(param.envvar) for param in found.params if param.envvar} - {"None"}


def containers(manifest: list[Any]) -> list[dict[str, Any]]:
    """Those of our images, and of the program beside them."""
    return [
        container
        for document in manifest
        for pod in walked(document)
        if isinstance(pod, dict)
        for key in ("containers", "initContainers")
        for container in pod.get(key, [])
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_variable_is_one_that_the_service_reads(path: Path) -> None:
    named = set(re.findall(r"\bERS_[A-Z_]+\b", path.read_text())) - OF_CADDY
    assert {name for name in named if f"`{name}`" not in OPERATIONS} == set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_command_and_flag_exists(path: Path) -> None:
    for line in re.findall(r"(?:bin/|: |; )ers ([a-z][^\n\"`.;]*)", path.read_text()):
        command: click.Command = ers
        for word in line.split():
            if word.startswith("--"):
                assert any(word in param.opts for param in command.params), line
            elif isinstance(command, click.Group):
                below = command.get_command(click.Context(command), word)
                assert below is not None, line
                command = below


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_a_unit_sets_only_what_its_side_takes(side: str) -> None:
    taken = options(side) | set(re.findall(r"`(ERS_[A-Z_]+)`", OPERATIONS))
    assert {name for name in UNITS[side].environment if name.startswith("ERS_")} <= taken
    other = "api" if side == "proxy" else "proxy"
    of_the_other = {variable(name) for name in TABLE if name.startswith(f"{other}_")}
    assert set(UNITS[side].environment) & of_the_other == set()


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_the_config_file_of_a_unit_is_one(side: str) -> None:
    config = read_config(DEPLOY / "systemd" / f"{side}.toml", must_exist=True)
    assert {variable(name) for name in config} <= options(side)


@pytest.mark.parametrize("side", ["api", "proxy"])
def test_a_unit_writes_only_where_it_may_and_listens_only_where_it_says(side: str) -> None:
    unit = UNITS[side]
    (folder,) = unit["StateDirectory"]
    for name in ("ERS_DATA_DIR", "XDG_STATE_HOME", "HOME"):
        assert unit.environment[name].startswith(f"%S/{folder}")
    metrics = unit.environment[f"ERS_{side.upper()}_METRICS_PORT"]
    port = TABLE[f"{side}_port"].default
    assert unit["SocketBindAllow"] == [f"tcp:{port}", f"tcp:{metrics}"]
    scraped = (DEPLOY / "monitoring" / "prometheus.yaml").read_text()
    assert f'job_name: ers-{side}\n    static_configs: [{{targets: ["127.0.0.1:{metrics}"]}}]' in (
        scraped
    )
    users = (DEPLOY / "systemd" / "sysusers.conf").read_text()
    assert f"/var/lib/{folder}\n" in users
    assert [f"ers-{side}"] == unit["User"]


def test_no_side_of_systemd_reads_the_files_of_the_other() -> None:
    assert UNITS["api"]["User"] != UNITS["proxy"]["User"]
    assert UNITS["api"]["StateDirectory"] != UNITS["proxy"]["StateDirectory"]
    for unit in UNITS.values():
        assert unit["UMask"] == ["0077"]
        assert unit["StateDirectoryMode"] == ["0700"]


def test_both_images_run_as_nobody_in_particular_and_say_whether_they_are_well() -> None:
    for side in ("api", "proxy"):
        stage = CONTAINERFILE.partition(f" AS {side}\n")[2].partition("\nFROM ")[0]
        assert "USER 10001:10001" in stage
        port = TABLE[f"{side}_port"].default
        assert f"EXPOSE {port}" in stage
        assert f"http://127.0.0.1:{port}/" in stage.partition("HEALTHCHECK")[2]
        assert f"ERS_DATA_DIR={DATA}/data" in stage
        assert f'ENTRYPOINT ["ers"]\nCMD ["{side}"]' in stage


def test_the_containerfile_is_as_its_linter_wants_it() -> None:
    done = subprocess.run(
        [BIN / "hadolint", DEPLOY / "Containerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_compose_file_fits_its_schema() -> None:
    checked("vendor.compose-spec", DEPLOY / "compose" / "compose.yaml")


def checked(schema: str, path: Path) -> None:
    done = subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", schema, path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_containers_of_compose_have_no_rights_and_write_only_to_their_volume() -> None:
    for side in ("api", "proxy"):
        service = COMPOSE["services"][side]
        assert service["image"] == f"encrypted-records-{side}:{__version__}"
        assert service["build"]["target"] == side
        assert (DEPLOY / "compose" / service["build"]["context"]).resolve() == ROOT
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["volumes"] == [f"{side}:{DATA}"]
    # The database and the API have nothing of the proxy's, and plaintext no open port.
    services = COMPOSE["services"]
    assert "keyring-passphrase" not in str(services["api"]) + str(services["postgres"])
    assert services["proxy"]["ports"] == ["127.0.0.1:8080:8080"]
    assert "ports" not in services["api"]
    for inner in ("postgres", "object-store", "bucket"):
        assert services[inner]["networks"] == ["database"]
        assert "ports" not in services[inner]
    assert COMPOSE["networks"]["database"] == {"internal": True}
    assert "ERS_DATABASE_URL" not in services["api"]["environment"]


def test_the_api_of_compose_stores_into_the_object_store_beside_it() -> None:
    services = COMPOSE["services"]
    url = urlsplit(services["api"]["environment"]["ERS_BULK_URL"])
    assert services["bucket"]["command"] == [
        f"echo 's3.bucket.create -name {url.netloc}' | weed shell -master=object-store:9333"
    ]
    (endpoint,) = parse_qs(url.query)["endpoint"]
    assert urlsplit(endpoint).hostname in services
    assert f"-s3.port={urlsplit(endpoint).port}" in services["object-store"]["command"]
    store = json.loads((DEPLOY / "compose" / "object-store.json.example").read_text())
    keys = store["identities"][0]["credentials"][0]
    given = (DEPLOY / "compose" / "api.env.example").read_text()
    assert f"AWS_ACCESS_KEY_ID={keys['accessKey']}\n" in given
    assert f"AWS_SECRET_ACCESS_KEY={keys['secretKey']}\n" in given
    assert store["identities"][0]["actions"] == [
        f"{what}:{url.netloc}" for what in ("Read", "Write", "List")
    ]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_fits_the_schemas_of_kubernetes(name: str) -> None:
    path = DEPLOY / "kubernetes" / f"{name}.yaml"
    done = subprocess.run(
        [BIN / "kubernetes-validate", "--strict", path], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count("passed for resource") == len(MANIFESTS[name])


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_are_restricted_and_of_this_version(name: str) -> None:
    pods = [one for one in walked(MANIFESTS[name]) if isinstance(one, dict) and "containers" in one]
    assert pods
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    sides = []
    for container in containers(MANIFESTS[name]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        if ours := OURS.fullmatch(container["image"]):
            side, version = ours.groups()
            sides.append(side)
            assert version == __version__
            assert container["args"] == [side]
            assert DATA in [mount["mountPath"] for mount in container["volumeMounts"]]
            assert {one["name"] for one in container["env"]} <= options(side) | {
                "ERS_SECRET_KEY_FILE" if side == "api" else "ERS_KEYRING_PASSPHRASE_FILE",
                "ERS_TRUSTED_PROXIES" if side == "api" else "",
            }
    assert sides == (["api"] if name == "api" else ["proxy"])


def test_ports_of_a_service_are_those_that_the_api_listens_on() -> None:
    service = next(one for one in MANIFESTS["api"] if one["kind"] == "Service")
    policy = next(one for one in MANIFESTS["api"] if one["kind"] == "NetworkPolicy")
    (container,) = containers(MANIFESTS["api"])
    told = {one["name"]: one.get("value") for one in container["env"]}
    (listened,) = container["ports"]
    port = TABLE["api_port"].default
    assert told["ERS_API_PORT"] == str(port)
    assert listened["containerPort"] == port
    assert [port["port"] for port in service["spec"]["ports"]] == [port]
    assert [port["port"] for port in policy["spec"]["ingress"][0]["ports"]] == [port]
    # Whoever probes must use a name that the API goes by.
    assert container["readinessProbe"]["httpGet"]["httpHeaders"] == [
        {"name": "Host", "value": "localhost"}
    ]


def test_secrets_stand_in_no_file_but_as_a_word_to_replace() -> None:
    for path in FILES:
        for url in re.findall(r"\w+(?:\+tls)?://[^\s\"/]*:[^\s\"/]*@", path.read_text()):
            assert url.endswith(":PASSWORD@"), path


def filled(text: str, labels: dict[str, str]) -> str:
    """An annotation of an alert, as it is raised with these labels."""
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)


def test_every_alert_has_a_first_look_in_the_documents() -> None:
    alerts = {rule["alert"] for rule in documents(ALERTS)[0]["groups"][0]["rules"]}
    text = (DEPLOY.parent / "docs" / "production.md").read_text()
    assert set(re.findall(r"`(EncryptedRecords\w+)`", text)) == alerts


def test_each_alert_is_tested_with_the_words_that_it_has() -> None:
    rules = {rule["alert"]: rule for rule in documents(ALERTS)[0]["groups"][0]["rules"]}
    (tests,) = documents(ALERTS.with_name("alerts.test.yaml"))
    assert tests["rule_files"] == [ALERTS.name]
    raised = set()
    for one in (one for test in tests["tests"] for one in test["alert_rule_test"]):
        rule = rules[one["alertname"]]
        for told in one["exp_alerts"]:
            raised.add(one["alertname"])
            texts = rule["annotations"].items()
            assert told["exp_annotations"] == {
                name: filled(text, told["exp_labels"]) for name, text in texts
            }
            assert rule["labels"].items() <= told["exp_labels"].items()
    assert raised == rules.keys()
