"""Model files from an enemy or a bad disk: a clear refusal, and no code is run."""

import importlib.util
import io
import json
import os
import pickle
import re
import sys
import zipfile
import zlib
from pathlib import Path

import joblib
import numpy as np
import pytest
import safetensors.numpy

from certus import persist
from certus.persist import ModelFileError, container, load, read_manifest, save


def _import(name):
    spec = importlib.util.spec_from_file_location(
        name, Path(__file__).with_name(f"{name}.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = _import("fuzz_files")


@pytest.fixture(autouse=True)
def registered():
    before, modules = dict(persist.REGISTRY), set(sys.modules)
    fuzz.register_models()
    yield
    persist.REGISTRY.clear()
    persist.REGISTRY.update(before)
    assert fuzz.CANARY not in set(sys.modules) - modules


@pytest.fixture
def blob(tmp_path):
    return save(fuzz.example_model(), tmp_path / "good.certus").read_bytes()


@pytest.fixture
def refused(tmp_path):
    """Load these bytes; give the message of the refusal."""

    def check(content, words):
        path = tmp_path / "model.certus"
        path.write_bytes(content)
        messages = []
        for reader in (load, read_manifest):
            with pytest.raises(ModelFileError, match=words) as caught:
                reader(path)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
        assert messages[0].startswith("model.certus ")
        assert messages[0].endswith(".")
        assert len(messages[0]) < 500
        return messages[0]

    return check


@pytest.fixture
def forged(tmp_path, blob):
    """Change the parts of a good file, seal it, load it; give the refusal."""

    def check(change, words):
        manifest, table, data = fuzz.take_apart(blob)
        path = tmp_path / "model.certus"
        path.write_bytes(fuzz.put_together(manifest, table, data))
        load(path)  # the tool that forges makes valid files when it changes nothing
        data = change(manifest, table, data) or data
        path.write_bytes(fuzz.put_together(manifest, table, data))
        with pytest.raises(ModelFileError, match=words) as caught:
            load(path)
        assert str(caught.value).startswith("model.certus ")
        assert len(str(caught.value)) < 500

    return check


# ------------------------------------------------------------------------ bad copies


def test_the_message_of_a_file_cut_short(blob, refused):
    words = f"model.certus is cut short at byte {len(blob) - 8:,} of {len(blob):,}. "
    message = refused(blob[:-8], re.escape(words))
    assert message == words + "Copy it again; nothing was loaded."


def test_every_length_short_of_the_whole_is_refused(blob, tmp_path):
    path = tmp_path / "model.certus"
    header = 8 + int.from_bytes(blob[:8], "little")
    near = {
        *range(20),
        *range(header - 9, header + 9),
        *range(len(blob) - 9, len(blob)),
    }
    for n in sorted(near | set(range(0, len(blob), 97))):
        path.write_bytes(blob[:n])
        with pytest.raises(ModelFileError, match="is empty" if n == 0 else "cut short"):
            load(path)


def test_bytes_after_the_end(blob, refused):
    refused(blob + b"\0" * 1234, "has 1,234 bytes after its end")


def test_every_flipped_bit_of_a_weight_is_seen(blob, refused):
    _, table, data = fuzz.take_apart(blob)
    start = len(blob) - len(data) + table["coef_"]["data_offsets"][0]
    for bit in range(64):
        raw = bytearray(blob)
        raw[start + bit // 8] ^= 1 << bit % 8
        refused(bytes(raw), "is damaged: its content does not match its checksum")


def test_a_flipped_bit_anywhere_is_seen(blob, tmp_path):
    path = tmp_path / "model.certus"
    for at in range(0, len(blob), 11):
        raw = bytearray(blob)
        raw[at] ^= 1 << at % 8
        path.write_bytes(bytes(raw))
        with pytest.raises(ModelFileError):
            load(path)


# ------------------------------------------------------------------- not a model file


class Payload:
    """A pickle of this runs code when it is loaded."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_not_opened(protocol, tmp_path, refused):
    target = tmp_path / "ran"
    content = pickle.dumps(Payload(target), protocol)
    words = "is a pickle.*run code" if protocol >= 2 else "is not a certus model file"
    refused(content, words)
    assert not target.exists()
    pickle.loads(content)  # the payload is live: it does run where it is unpickled
    assert target.exists()


def test_archives_are_not_opened(tmp_path, refused):
    joblib.dump(Payload(tmp_path / "ran"), tmp_path / "j", compress=("zlib", 3))
    refused((tmp_path / "j").read_bytes(), "is not a certus model file")
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(10**7))
    refused(bomb.getvalue(), "compressed archive")
    refused(zlib.compress(bytes(10**7), wbits=31), "compressed archive")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,2\n3,4\n",
        b"\x89PNG\r\n\x1a\n" + bytes(40),
        bytes(64),
        b"\xff" * 64,
        b'{"certus": 1, "class": "Ridge"}',
        "áéíóú".encode("utf-16") * 9,
    ],
)
def test_other_files(content, refused):
    refused(content, "is not a certus model file")


def test_an_empty_file(refused):
    refused(b"", "is empty")


def test_places_that_are_not_files_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(ModelFileError, match=r"gone\.certus does not exist"):
        load(tmp_path / "gone.certus")
    with pytest.raises(ModelFileError, match="null character"):
        load("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a regular file"):
        load(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ModelFileError, match="cannot be read"):
        load(tmp_path / "loop")
    with pytest.raises(ModelFileError, match="cannot be read"):
        load(tmp_path / ("n" * 300))


def test_a_safetensors_file_of_somebody_else(refused):
    tensors = {"w": np.ones(3)}
    refused(safetensors.numpy.save(tensors), "without a certus manifest")
    refused(safetensors.numpy.save(tensors, {"format": "pt"}), "without a certus")


# --------------------------------------------------------------------- forged headers


def raw_file(header, data=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(header).to_bytes(8, "little") + header + data


@pytest.mark.parametrize("length", [2**26 + 1, 2**31, 2**63 - 1, 2**64 - 1])
def test_a_huge_header_is_not_allocated(length, refused):
    content = length.to_bytes(8, "little") + b"{" + bytes(100)
    refused(content, r"declares a header of [\d,]+ bytes")


@pytest.mark.parametrize("deep", ["[", '{"a":', '{"a":[', '{"a":"\\"",[['])
def test_nesting_is_counted_before_parsing(deep, refused, blob):
    refused(raw_file(b'{"a":' + deep.encode() * 100_000), "nested deeper than 128")
    text = '{"sha256":"' + fuzz.ZEROS + '","schema":' + deep * 100_000
    refused(fuzz.put_together(text, {}, b""), "manifest is nested deeper than 128")


def test_brackets_within_text_are_text(tmp_path):
    model = fuzz.Everything(alpha='[{"' * 1000 + "\\")
    assert load(save(model, tmp_path / "m.certus")).alpha == model.alpha


def test_an_unterminated_string_takes_linear_time(refused):
    refused(raw_file(b'{"' + b'\\"' * 500_000), "is not JSON")
    refused(raw_file(b'{"' + b"\\" * 500_001), "is not JSON")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"{", "is not JSON"),
        (b'{"a":NaN}', "is not JSON"),
        (b'{"a":' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"\xff":1}', "header is not text"),
        (b'{"a":1,"a":2}', "'a' appears twice"),
        (b'{"a":1}', "'a' is described incompletely"),
        ({"a": {"dtype": "F64", "shape": [1]}}, "described incompletely"),
        ({"a": {"dtype": "F8", "shape": [1], "data_offsets": [0, 1]}}, "dtype 'F8'"),
        ({"a": {"dtype": ["F64"], "shape": [], "data_offsets": [0, 8]}}, "dtype"),
        ({"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}, "shape"),
        ({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, "shape"),
        ({"a": {"dtype": "U8", "shape": [1.0], "data_offsets": [0, 1]}}, "shape"),
        ({"a": {"dtype": "U8", "shape": 1, "data_offsets": [0, 1]}}, "shape"),
        ({"a": {"dtype": "U8", "shape": [1] * 33, "data_offsets": [0, 1]}}, "shape"),
        ({"a": {"dtype": "F64", "shape": [2**61], "data_offsets": [0, 0]}}, "shape"),
        ({"a": {"dtype": "F64", "shape": [2**63], "data_offsets": [0, 0]}}, "shape"),
        (
            {"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 0]}},
            "does not match its size",
        ),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [-1, 0]}}, "offsets"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2]}}, "offsets"),
        ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}, "gaps"),
        (
            {
                "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]},
            },
            "overlap",
        ),
        (
            {"a": {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 2**62]}},
            "cut short",
        ),
        ({"__metadata__": None}, "without a certus manifest"),
        ({"__metadata__": {"certus": {}}}, "without a certus manifest"),
        ({"__metadata__": {"certus": ""}}, "no checksum"),
        ({"__metadata__": {"certus": "{}"}}, "no checksum"),
        ({"__metadata__": {"certus": '{"sha256":"'}}, "does not match its checksum"),
    ],
)
def test_forged_headers(header, words, refused):
    refused(raw_file(header), words)


def test_the_seal_may_not_stand_elsewhere(refused):
    text = json.dumps({"schema": 1, "sha256": fuzz.ZEROS}, separators=(",", ":"))
    refused(fuzz.put_together(text, {}, b""), "damaged")


# ------------------------------------------------------------------- forged manifests


def setting(*path, to):
    """Put a value at a place in the manifest."""

    def change(manifest, table, data):
        node = manifest
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = to

    return change


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "antigravity",
        "antigravity.fly",
        "certus.linear_model.Ridge",
        "sklearn.linear_model.Ridge",
        "__builtins__",
        "",
        7,
        None,
        ["Ridge"],
        {"~": "type", "name": "float"},
    ],
)
def test_no_class_is_imported_by_name(name, forged):
    before = set(sys.modules)
    forged(setting("class", to=name), "names the class")
    inner = {"~": "estimator", "class": name, "params": {}, "attributes": {}}
    forged(setting("params", "inner", to=inner), "names the class")
    forged(setting("params", "inner", to={"~": "type", "name": name}), "'type'")
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (2, r"written by a newer certus \(schema 2; .*Upgrade"),
        (10**30, "newer certus"),
        (0, "impossible schema"),
        (-1, "impossible schema"),
        ("1", "str as a schema version"),
        (True, "bool as a schema version"),
        (1.0, "float as a schema version"),
        (None, "NoneType as a schema version"),
    ],
)
def test_schema_versions(schema, words, forged):
    forged(setting("schema", to=schema), words)


@pytest.mark.parametrize(
    "field",
    ["class", "params", "attributes", "feature_names", "certificate", "split"],
)
def test_missing_and_unexpected_fields(field, forged):
    def without(manifest, table, data):
        del manifest[field]

    forged(without, f"'{field}' missing or unexpected")
    forged(setting(field + "_", to=1), f"'{field}_' missing or unexpected")


@pytest.mark.parametrize("value", [None, 1, "x", [], {"~": "tuple", "items": []}])
def test_fields_of_the_wrong_type_are_refused(value, forged):
    forged(setting("params", to=value), "as parameters")
    forged(setting("versions", to=value), "version")
    forged(setting("attributes", to=value), "attributes|incomplete")


@pytest.mark.parametrize(
    "name",
    ["__class__", "__dict__", "__init__", "predict", "fit", "get_params", "twice",
     "alpha", "a b", "", "1", "a.b", "_skl_callbacks", "__array__"],
)  # fmt: skip
def test_attributes_may_not_replace_behaviour(name, forged):
    words = "not a fitted attribute of"
    if name == "fit":  # no method of this class: an attribute of that name is inert
        name = "set_params"
    forged(setting("attributes", name, to=1), words)
    forged(setting("params", "inner", "attributes", name, to=1), words)


def test_own_fields_are_stated_once(forged):
    forged(setting("attributes", "certificate_", to=None), "in the wrong place")


@pytest.mark.parametrize("name", ["beta", "self", "__class__", "args", ""])
def test_unknown_parameters(name, forged):
    forged(setting("params", name, to=1), "which Everything does not have")


HUGE = {"~": "objects", "shape": [2**40], "items": []}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"~": "pickle", "value": "gASVHwAAAAAAAAC"}, "unknown kind 'pickle'"),
        ({"~": ["tuple"]}, "unknown kind"),
        ({"~": "tuple"}, "incomplete value of kind 'tuple'"),
        ({"~": "tuple", "items": [], "more": 1}, "incomplete value"),
        ({"~": "tuple", "items": "ab"}, "str as items"),
        ({"~": "float", "value": "1e5"}, "'float' that cannot be rebuilt"),
        ({"~": "set", "items": [[]]}, "cannot be rebuilt"),
        ({"~": "dict", "items": [[{}, 1]]}, "cannot be rebuilt"),
        ({"~": "dict", "items": [[1, 1], [1, 2]]}, "repeated key"),
        ({"~": "dict", "items": [[1]]}, "cannot be rebuilt"),
        ({"~": "bytes", "hex": "zz"}, "cannot be rebuilt"),
        ({"~": "date", "value": "2024-13-01"}, "cannot be rebuilt"),
        ({"~": "datetime", "value": 3, "offset": None}, "cannot be rebuilt"),
        ({"~": "timedelta", "days": 10**30, "seconds": 0, "microseconds": 0}, "reb"),
        ({"~": "complex", "real": "1", "imag": 0.0}, "str as a number"),
        ({"~": "range", "start": 0, "stop": 10**18, "step": 1}, "unknown kind"),
        ({"~": "dtype", "name": "O,O"}, "unknown dtype"),
        ({"~": "dtype", "name": "<f8,<f8"}, "unknown dtype"),
        ({"~": "scalar", "dtype": "|i1", "value": 300}, "cannot be rebuilt"),
        ({"~": "scalar", "dtype": "<f4", "value": 1e300}, "cannot be rebuilt"),
        ({"~": "scalar", "dtype": "<c16", "value": "00"}, "cannot be rebuilt"),
        ({"~": "enum", "class": "Status", "value": "happy"}, "cannot be rebuilt"),
        ({"~": "term", "class": "L1", "values": []}, "cannot be rebuilt"),
        ({"~": "term", "class": "L1", "values": ["x"]}, "str as a number of L1"),
        ({"~": "term", "class": "os.system", "values": ["x"]}, "cannot be rebuilt"),
        (
            {"~": "array", "dtype": "<f8", "order": "C", "tensor": "no"},
            "'no', which is",
        ),
        ({"~": "array", "dtype": "<f8", "order": "C", "tensor": 3}, "'3', which is"),
        (HUGE, "shape does not match its size"),
        ({**HUGE, "shape": [0, 2**62, 2**62]}, "cannot be rebuilt"),
        ({**HUGE, "shape": [-1, -1], "items": [0]}, "cannot be rebuilt"),
        ({**HUGE, "shape": ["a"], "items": ["b"]}, "cannot be rebuilt|does not match"),
        (
            {"~": "estimator", "class": "Everything", "params": [], "attributes": {}},
            "list as parameters",
        ),
    ],
)
def test_forged_values(value, words, forged):
    forged(setting("params", "alpha", to=value), words)
    forged(setting("params", "alpha", to=[{"a": value}]), words)


def test_numbers_that_overflow_to_infinity(blob, refused, tmp_path):
    manifest, table, data = fuzz.take_apart(blob)
    manifest["params"]["alpha"] = 12345.5
    text = json.dumps({**manifest, "sha256": fuzz.ZEROS}, separators=(",", ":"))
    path = tmp_path / "m.certus"
    path.write_bytes(fuzz.put_together(text.replace("12345.5", "1e999"), table, data))
    with pytest.raises(ModelFileError, match="too large"):
        load(path)


# --------------------------------------------------------------------- forged tensors


def attribute(name, field, to):
    return setting("attributes", name, field, to=to)


def overwrite(name, content, at=0):
    """Replace bytes of one tensor."""

    def change(manifest, table, data):
        start = table[name]["data_offsets"][0] + at
        return data[:start] + content + data[start + len(content) :]

    return change


def test_tensors_missing_extra_and_shared(forged):
    def drop(manifest, table, data):
        del manifest["attributes"]["coef_"]

    forged(drop, "tensor 'coef_', which no value refers to")
    forged(attribute("names_", "tensor", "coef_"), "missing or used twice|declared as")
    double = {"~": "array", "dtype": "<f8", "order": "C", "tensor": "coef_"}
    forged(setting("params", "alpha", to=double), "missing or used twice")


def test_tensors_of_another_type(forged):
    forged(attribute("coef_", "dtype", "<f4"), "float64 that is declared as float32")
    forged(attribute("coef_", "dtype", "<U9999999"), "declared as")
    forged(attribute("names_", "dtype", "<U9999999"), "declared as <U9999999")
    forged(attribute("coef_", "dtype", "O"), "unknown dtype 'O'")
    forged(attribute("coef_", "dtype", "|O"), "float64 that is declared as object")
    forged(attribute("coef_", "dtype", "V8"), "unknown dtype 'V8'")
    forged(attribute("coef_", "order", "A"), "unknown order 'A'")


def test_bytes_that_encode_no_value_are_refused(forged):
    forged(overwrite("mask_", b"\x02"), "neither true nor false")
    forged(overwrite("names_", b"\xff" * 4), "impossible character")


def test_sparse_indices_are_checked(forged):
    out = (1000).to_bytes(4, "little")
    for part in ("sparse_.1", "sparse_.2", "triplets_.1"):
        forged(overwrite(part, out), "sparse")
        forged(overwrite(part, b"\xff" * 4), "sparse")
    forged(setting("attributes", "sparse_", "shape", to=[4, 1]), "sparse")
    forged(setting("attributes", "sparse_", "shape", to=[2**62, 5]), "sparse")
    forged(setting("attributes", "sparse_", "class", to="os.system"), "sparse")
    forged(setting("attributes", "triplets_", "shape", to=[3]), "sparse")


@pytest.mark.parametrize("position", [-1, 625, 2**31 - 1, 2**40, "1", None])
def test_random_states_may_not_point_outside_themselves(position, forged):
    words = "random"
    forged(
        setting("params", "random_state", "state", "state", "pos", to=position), words
    )
    forged(setting("attributes", "counter_", "state", "buffer_pos", to=position), words)
    forged(setting("attributes", "rng_", "seed", "pool_size", to=65), "impossible pool")
    forged(setting("attributes", "rng_", "state", "bit_generator", to="os"), words)


# ---------------------------------------------------------------- forged certificates


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status",), "happy"),
        (("primary",), "unheard_of"),
        (("claims",), []),
        (("claims",), {}),
        (("claims", 0, "value"), "tiny"),
        (("claims", 0, "strength"), "certain"),
        (("claims", 0, "strength"), "measured"),
        (("claims", 0, "met"), 1),
        (("claims", 0, "detail"), 3),
        (("claims", 0, "assumptions"), [1]),
        (("n_samples",), "many"),
        (("seconds",), None),
        (("params",), [1]),
        (("fingerprint",), {"float": "x"}),
    ],
)
def test_forged_certificates(path, value, forged):
    forged(setting("certificate", "value", *path, to=value), "is not valid")


def test_a_forged_origin_is_overruled(blob, tmp_path):
    manifest, table, data = fuzz.take_apart(blob)
    manifest["certificate"]["value"]["origin"] = "certify"
    path = tmp_path / "model.certus"
    path.write_bytes(fuzz.put_together(manifest, table, data))
    assert load(path).certificate_.origin == "file"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), 3),
        ((), {"~": "tuple", "items": []}),
        (("kind",), None),
        (("params",), None),
        (("arrays", "dual"), [1.0]),
        (("arrays",), []),
        (("terms",), 3),
        (("terms",), ["Squared"]),
        (("terms",), [{"~": "term", "class": "os.system", "values": []}]),
        (("terms",), [{"~": "term", "class": "L1", "values": ["x"]}]),
    ],
)
def test_forged_evidence(path, value, forged):
    forged(setting("certificate", "evidence", *path, to=value), "is not valid")


# ----------------------------------------------------------------------- many of them


def test_a_header_that_would_be_too_large_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "MAX_HEADER", 2000)
    with pytest.raises(ModelFileError, match="more than the 2,000 that a model file"):
        save(fuzz.Everything(alpha="a" * 3000), tmp_path / "m.certus")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("error")
def test_a_sample_of_the_fuzzed_files(tmp_path):
    outcomes = fuzz.run(300, 1, tmp_path)
    assert outcomes["forged", "loaded"] < outcomes["forged", "is not valid:"]
    assert sum(outcomes.values()) == 300
