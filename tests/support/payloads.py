"""Text that attacks a page: each, if it ran, would set the title to XSS, open a dialog or load from
127.0.0.1:9. HTML, SVG, MathML, Markdown, addresses, CSS, templates, entities, mutation, direction.
"""

from __future__ import annotations

import json
from pathlib import Path

_RUN = "document.title='XSS'"
_CASE = Path(__file__).parents[1] / "browser" / "data" / "payloads.json"

PAYLOADS: list[str] = [
    *json.loads(_CASE.read_text("utf-8")),
    # elements and handlers
    f"<img src onerror={_RUN}>",
    f"<IMG/SRC=x/ONERROR={_RUN}//",
    f"<body onload={_RUN}>",
    f"<video><source onerror={_RUN}>",
    f"<audio src=x onerror={_RUN}>",
    f"<input autofocus onfocus={_RUN}>",
    f"<select autofocus onfocus={_RUN}>",
    f"<textarea autofocus onfocus={_RUN}>",
    f"<marquee onstart={_RUN}>",
    f"<object data=\"data:text/html,<script>parent.{_RUN}</script>\">",
    f"<embed src=\"javascript:{_RUN}\">",
    f"<iframe src=\"javascript:parent.{_RUN}\">",
    f"<base href=\"javascript:{_RUN}//\">",
    f"<meta http-equiv=refresh content=\"0;url=javascript:{_RUN}\">",
    "<meta http-equiv=refresh content=\"0;url=http://127.0.0.1:9/\">",
    "<link rel=stylesheet href=http://127.0.0.1:9/x.css>",
    f"<button popovertarget=x>x</button><div popover id=x onbeforetoggle={_RUN}>",
    f"<template><script>{_RUN}</script></template>",
    f"<noscript><p title=\"</noscript><img src=x onerror={_RUN}>\">",
    f"<title></title><img src=x onerror={_RUN}>",
    f"<xss onclick={_RUN} style=position:fixed;inset:0 tabindex=1>x",
    f"<a href=x onpointerenter={_RUN} style=position:fixed;inset:0>x</a>",
    # SVG and MathML
    f"<svg><script>{_RUN}</script></svg>",
    f"<svg><animate onbegin={_RUN} attributeName=x dur=1s>",
    f"<svg><a xlink:href=\"javascript:{_RUN}\"><text y=20>x</text></a></svg>",
    f"<svg><use href=\"data:image/svg+xml,<svg id='x' xmlns='http://www.w3.org/2000/svg'><script>{_RUN}</script></svg>#x\">",
    f"<svg><foreignObject><iframe srcdoc=\"<script>parent.{_RUN}</script>\"></foreignObject></svg>",
    f"<svg><set attributeName=onmouseover to={_RUN}>",
    f"<math href=\"javascript:{_RUN}\">x</math>",
    f"<math><annotation-xml encoding=text/html><img src=x onerror={_RUN}></annotation-xml></math>",
    # what becomes something else when it is parsed again
    f"<svg></p><style><a id=\"</style><img src=x onerror={_RUN}>\">",
    f"<form><math><mtext></form><form><mglyph><style></math><img src=x onerror={_RUN}>",
    f"<svg><desc><noscript>&lt;/noscript>&lt;img src=x onerror={_RUN}>",
    f"<table><td><!--</table>--><img src=x onerror={_RUN}>",
    f"<!--><img src=x onerror={_RUN}>-->",
    f"<![CDATA[><img src=x onerror={_RUN}>]]>",
    f"<?xml version='1.0'?><img src=x onerror={_RUN}>",
    f"<plaintext><img src=x onerror={_RUN}>",
    f"\x3cimg src=x onerror=\u0022{_RUN}\u0022\x3e",
    f"<scr\u0000ipt>{_RUN}</scr\u0000ipt>",
    f"<s\u0131ript>{_RUN}</s\u0131ript><\u017fcript>{_RUN}</\u017fcript>",
    f"\uff1cscript\uff1e{_RUN}\uff1c/script\uff1e",
    f"+ADw-script+AD4-{_RUN}+ADw-/script+AD4-",
    f"&lt;img src=x onerror={_RUN}&gt;",
    f"&#60;img src=x onerror={_RUN}&#62;",
    f"%3Cimg%20src%3Dx%20onerror%3D{_RUN}%3E",
    # out of an attribute, a string, a comment, a block
    f"'-({_RUN})-'",
    f"\"-({_RUN})-\"",
    f"`${{{_RUN}}}`",
    f"\\u003cimg src=x onerror={_RUN}\\u003e",
    f"--></script><script>{_RUN}</script><!--",
    f"</textarea><img src=x onerror={_RUN}>",
    f"</title><script>{_RUN}</script>",
    f"</style><script>{_RUN}</script>",
    f"' onmouseover='{_RUN}' style='position:fixed;inset:0' x='",
    f"x\" onerror=\"{_RUN}",
    f"]]>{_RUN}//*/",
    # Markdown and addresses
    f"[x](JaVaScRiPt:{_RUN})",
    f"[x](java&#10;script:{_RUN})",
    f"[x](\x01javascript:{_RUN})",
    f"[x](&#106;avascript:{_RUN})",
    f"[x](javascript&colon;{_RUN})",
    f"[x](vbscript:{_RUN})",
    "[x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+)",
    f"[x](<javascript:{_RUN}>)",
    f"[x]: javascript:{_RUN}\n\n[x]",
    f"<javascript:{_RUN}>",
    f"[x](https://a.example \"onmouseover={_RUN} x=\")",
    f"[<img src=x onerror={_RUN}>](https://a.example)",
    f"![\"onerror=\"{_RUN}](x)",
    "![x](http://127.0.0.1:9/pixel.png)",
    "[![x](http://127.0.0.1:9/a.png)](http://127.0.0.1:9/b)",
    f"```\"><img src=x onerror={_RUN}>\nx\n```",
    f"`</code><img src=x onerror={_RUN}>`",
    f"| a |\n|---|\n| <img src=x onerror={_RUN}> |",
    f"- [x] <input onfocus={_RUN} autofocus>",
    f"https://a.example/\"onmouseover=\"{_RUN}",
    # style sheets
    "<div style=\"background:url(http://127.0.0.1:9/css)\">x</div>",
    "<style>*{background:url(http://127.0.0.1:9/all)}</style>",
    f"<style>@keyframes x{{}}</style><b style=animation-name:x onanimationstart={_RUN}>x</b>",
    "<div style=\"width:expression(alert(1))\">x</div>",
    # templates
    f"{{{{ constructor.constructor('{_RUN}')() }}}}",
    "{% load static %}{% include 'admin/base.html' %}{{ request.user.password }}",
    "${7*7}#{7*7}<%= 7*7 %>{{=7*7}}",
    # what people see is not what is there
    "\u202e>'SSX'=eltit.tnemucod=rorreno x=crs gmi<",
    f"\u2066<img src=x onerror={_RUN}>\u2069",
    f"<\u200bimg src=x onerror={_RUN}>",
    # names of things that scripts look up
    "<form id=thread><input name=innerHTML value=x></form><img name=cookie>",
    f"<a id=boot href=\"javascript:{_RUN}\"><a id=boot name=csrf>",
    f"__proto__\"><img src=x onerror={_RUN}>",
]  # fmt: skip
SHORT = [payload for payload in PAYLOADS if len(payload) <= 100]
"""Those that fit into a name."""
NAMES = [payload.replace("/", "\u2215").replace("\x00", "") for payload in SHORT]
"""The same where a slash would lead elsewhere."""
