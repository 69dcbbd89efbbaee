"""The page of partners names every partner and every kind of store, and no test failed when it was made."""

from __future__ import annotations

import re

from poolscope.connectors import CONNECTORS
from works_with import CLIENT, DOCUMENT, PARTNERS, REAL, ROOT, ran, rows_of


def rows():
    lines = rows_of(DOCUMENT.read_text(encoding="utf-8")).values()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row for row in cells}


def test_the_page_is_that_of_these_partners():
    made = rows()
    assert list(made) == [partner.name for partner in PARTNERS]
    for partner in PARTNERS:
        name, version, does, how, tests, day = made[partner.name]
        assert (name, does, how) == (partner.name, partner.does, partner.how)
        assert how in (REAL, CLIENT)
        assert re.fullmatch(r"[1-9]\d* passed", tests), tests
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", day)
        assert re.match(r"\d", version)


def test_every_kind_of_store_has_a_partner_and_every_test_is_there():
    assert {kind for partner in PARTNERS for kind in partner.kinds} == {*CONNECTORS, "opensearch"}  # by elastic
    assert [file for partner in PARTNERS for file in partner.files if not (ROOT / file).is_file()] == []


def test_what_failed_is_said(tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text("import pytest\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pytest.skip('x')\n")
    partner = type(PARTNERS[0])("x", "", "", (str(file),))
    assert ran(partner) == "1 passed, 1 failed, 1 skipped"
