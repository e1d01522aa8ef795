"""Workbooks as spreadsheet programs write them, made of what stands in their cells."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><fonts><font/></fonts><fills><fill/></fills>'
    "<borders><border/></borders><cellStyleXfs><xf/></cellStyleXfs><cellXfs>"
    + "".join(f'<xf numFmtId="{one}" applyNumberFormat="1"/>' for one in (0, 14, 22, 21, 46))
    + "</cellXfs></styleSheet>"
)
_HIDDEN = ("", ' state="hidden"')
#: Numbers of styles, for cells that are days and times.
DAY, MOMENT, TIME, SPAN = 1, 2, 3, 4


def number(value: str, style: int = 0) -> str:
    """A cell with a number, as it is written in the file."""
    return f'<c r="@" s="{style}"><v>{value}</v></c>'


def text(value: str) -> str:
    return f'<c r="@" t="inlineStr"><is><t xml:space="preserve">{escape(value)}</t></is></c>'


def truth(value: bool) -> str:
    return f'<c r="@" t="b"><v>{int(value)}</v></c>'


def fault(value: str = "#DIV/0!") -> str:
    return f'<c r="@" t="e"><v>{value}</v></c>'


def formula(value: str | None) -> str:
    """A formula with the value that the program has computed; None is none."""
    computed = "" if value is None else f"<v>{value}</v>"
    return f'<c r="@"><f>1+1</f>{computed}</c>'


Cell = str | int | float | None


def sheet(rows: Sequence[Sequence[Cell]], more: str = "") -> str:
    """The XML of a sheet. A text that begins with ``<c`` is the cell itself."""
    lines = []
    for at, row in enumerate(rows, 1):
        cells = "".join(
            _cell(one).replace("@", f"{_letters(place)}{at}", 1)
            for place, one in enumerate(row)
            if one is not None
        )
        lines.append(f'<row r="{at}">{cells}</row>')
    return f'<worksheet xmlns="{_MAIN}"><sheetData>{"".join(lines)}</sheetData>{more}</worksheet>'


def _cell(value: Cell) -> str:
    if isinstance(value, str):
        return value if value.startswith("<c ") else text(value)
    return number(str(value))


def _letters(place: int) -> str:
    return (chr(64 + place // 26) if place >= 26 else "") + chr(65 + place % 26)


def xlsx(
    sheets: Mapping[str, str],
    *,
    hidden: Sequence[str] = (),
    from_1904: bool = False,
    more: str = "",
) -> bytes:
    """A workbook of sheets by name, each as :func:`sheet` makes it; ``more`` stands behind them."""
    names = list(sheets)
    entries = "".join(
        f'<sheet name="{escape(name)}" sheetId="{at}" r:id="rId{at}"{_HIDDEN[name in hidden]}/>'
        for at, name in enumerate(names, 1)
    )
    properties = '<workbookPr date1904="1"/>' if from_1904 else ""
    relations = "".join(
        f'<Relationship Id="rId{at}" Type="{_RELATIONS}/worksheet" Target="worksheets/s{at}.xml"/>'
        for at in range(1, len(names) + 1)
    )
    styles = f'<Relationship Id="rId999" Type="{_RELATIONS}/styles" Target="styles.xml"/>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{_TYPES}"></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}"><Relationship Id="rId1"'
        f' Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}">{properties}'
        f"<sheets>{entries}</sheets>{more}</workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}">{relations}{styles}'
        "</Relationships>",
        "xl/styles.xml": _STYLES,
    }
    parts |= {f"xl/worksheets/s{at}.xml": sheets[name] for at, name in enumerate(names, 1)}
    return packed(parts)


def ods(rows: Sequence[Sequence[str]]) -> bytes:
    """A workbook of OpenDocument with a sheet; a text that begins with ``<table:`` is the cell."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    lines = "".join(
        "<table:table-row>" + "".join(_ods_cell(one) for one in row) + "</table:table-row>"
        for row in rows
    )
    content = (
        f"<office:document-content {spaces}><office:body><office:spreadsheet>"
        f'<table:table table:name="Data">{lines}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    return packed({"mimetype": kind, "content.xml": content, "META-INF/manifest.xml": "<x/>"})


def ods_cell(kind: str, value: str, shown: str = "") -> str:
    name = {"date": "date-value", "time": "time-value", "boolean": "boolean-value"}.get(
        kind, "value"
    )
    return (
        f'<table:table-cell office:value-type="{kind}" office:{name}="{value}">'
        f"<text:p>{escape(shown or value)}</text:p></table:table-cell>"
    )


def _ods_cell(value: str) -> str:
    if value.startswith("<table:"):
        return value
    return (
        f'<table:table-cell office:value-type="string"><text:p>{escape(value)}</text:p>'
        "</table:table-cell>"
    )


def packed(parts: Mapping[str, str]) -> bytes:
    """A ZIP archive of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()
