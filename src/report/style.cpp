// The CSS of the page: light and dark, wide and narrow screens, and paper.
#include "report/sections.hpp"

namespace millrace::report {
namespace {

const char* const colors_css = R"(:root{
--paper:#fff;--ink:#1b1f24;--quiet:#58606b;--faint:#e3e6ea;--wash:#f5f6f8;--accent:#1f5fa8;
--good:#1c7a4c;--busy:#8a5a00;--bad:#b3263e;
--c0:#1f6fc4;--c1:#cf6a12;--c2:#24875a;--c3:#8450b5;--c4:#b8324f;--c5:#5f6a78;
--forward:#4f8fd6;--backward:#2a5fa5;--optimizer:#8b6fc4;--communication:#c93d60;--data_wait:#e39433;--copy:#c7ac1d;
--evaluation:#2f9c78;--checkpoint:#86b447;--startup:#8e96a3;--other:#c3c9d1;--on:#fff}
@media(prefers-color-scheme:dark){:root{
--paper:#14171b;--ink:#e8eaed;--quiet:#a3abb6;--faint:#30363e;--wash:#1d2126;--accent:#7db4f2;
--good:#5cc893;--busy:#e2b04c;--bad:#f27d92;
--c0:#6fb0f5;--c1:#f2a05a;--c2:#63c795;--c3:#bd95e8;--c4:#f0788f;--c5:#a3adba;
--forward:#6aa7ea;--backward:#3f78c0;--optimizer:#a58be0;--communication:#e2597b;--data_wait:#eda650;--copy:#d8c23d;
--evaluation:#4fbd96;--checkpoint:#9fca63;--startup:#8b93a0;--other:#59616c;--on:#10131a}}
@media print{:root{
--paper:#fff;--ink:#000;--quiet:#444;--faint:#ddd;--wash:#f5f6f8;--accent:#1f5fa8;
--good:#1c7a4c;--busy:#8a5a00;--bad:#b3263e;
--c0:#1f6fc4;--c1:#cf6a12;--c2:#24875a;--c3:#8450b5;--c4:#b8324f;--c5:#5f6a78;
--forward:#4f8fd6;--backward:#2a5fa5;--optimizer:#8b6fc4;--communication:#c93d60;--data_wait:#e39433;--copy:#c7ac1d;
--evaluation:#2f9c78;--checkpoint:#86b447;--startup:#8e96a3;--other:#c3c9d1;--on:#fff}}
)";

const char* const text_css = R"(*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums lining-nums}
main{max-width:76rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.9rem;line-height:1.2;letter-spacing:-.015em;margin:0 0 .5rem;overflow-wrap:anywhere}
h2{font-size:1.2rem;letter-spacing:-.005em;margin:2.75rem 0 1rem;padding-top:.6rem;border-top:1px solid var(--faint)}
h3{font-size:1rem;margin:0 0 .75rem;overflow-wrap:anywhere}
p{margin:.35rem 0}small{font-size:.85em;color:var(--quiet);font-weight:400}
code,pre{font:.92em/1.5 ui-monospace,SFMono-Regular,"DejaVu Sans Mono",Consolas,monospace}
pre{background:var(--wash);padding:1rem;border-radius:6px;overflow-x:auto;margin:.5rem 0}
.quiet{color:var(--quiet);font-size:.9rem}
.state{display:inline-block;font-weight:600;font-size:.9rem;padding:.05rem .6rem;border-radius:1rem;border:1.5px solid currentColor}
.good{color:var(--good)}.busy{color:var(--busy)}.bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(var(--columns),1fr);border:1px solid var(--faint);border-radius:8px;overflow:hidden;margin:1.5rem 0 0;padding:0 1px 1px 0}
.tiles div{padding:.7rem .9rem;box-shadow:1px 1px 0 var(--faint)}
.tiles div:nth-child(n+7):last-child:nth-child(odd){grid-column:span 2}
dt{color:var(--quiet);font-size:.85rem}dd{margin:0;white-space:nowrap;font-size:1.25rem;font-weight:600;letter-spacing:-.01em}
.verdict{font-size:1.05rem;max-width:60rem;border-left:4px solid var(--accent);padding:.15rem 0 .15rem .9rem;margin:0 0 1rem;overflow-wrap:anywhere}
.findings{list-style:none;margin:0;padding:0;max-width:60rem}
.findings li{display:grid;grid-template-columns:5.2rem 1fr;gap:.9rem;padding:.55rem 0;border-top:1px solid var(--faint)}
.findings li:first-child{border-top:0}.findings p{margin:.1rem 0;color:var(--quiet);font-size:.92rem}
.gain{text-align:right;font-weight:600}.findings code{overflow-wrap:anywhere}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--accent);padding:.15rem 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.92rem;margin:.25rem 0}
td{white-space:nowrap}th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--faint);vertical-align:top}
th{font-weight:400;color:var(--quiet);white-space:nowrap}tbody th,th:first-child,.figures tbody th{text-align:left}
th:first-child,td:first-child{padding-left:0}tbody th{color:var(--ink)}
tbody tr:last-child>*{border-bottom:0}
.figures thead th{color:var(--ink);font-weight:600;white-space:normal;overflow-wrap:anywhere;min-width:6rem}
.words thead th{text-align:left}.words td{text-align:left;overflow-wrap:anywhere;min-width:7rem;white-space:pre-line}
.pairs th,.pairs td{white-space:normal}.pairs{min-width:min(100%,22rem)}
)";

const char* const picture_css =
    R"(.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:2rem 2.5rem}
.side{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:2rem 2.5rem}
.plots>*,.side>*{min-width:0}.plots>.wide,.plots>p,.plots>ol,.plots>details{grid-column:1/-1}
.plots>p,.plots>ol,.plots>details{margin-bottom:-1.5rem}
figure{margin:0 0 1.5rem;min-width:0;break-inside:avoid}
.plots>figure{margin-bottom:0}
figcaption{font-weight:600}
.legend{font-size:.85rem;color:var(--quiet);display:flex;flex-wrap:wrap;gap:.1rem 1rem;margin:.15rem 0 .4rem;min-height:1.3rem}
.legend b{color:var(--ink);font-weight:600}.legend .quiet{font-size:inherit}
.key{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin-right:.4rem;vertical-align:-.08rem;background:currentColor}
.key.dot{border-radius:50%}
.frame{padding:0 .4rem 0 3.6rem}
.unit{font-size:.78rem;color:var(--quiet);margin-left:-3.6rem;line-height:1.6;padding-bottom:.45rem}
.area{position:relative;height:13.5rem;border-bottom:1px solid var(--quiet)}
.area svg{position:absolute;inset:0;width:100%;height:100%;overflow:hidden;display:block}
.area .x,.area .y,.foot .x{position:absolute;font-size:.78rem;line-height:1;color:var(--quiet);white-space:nowrap}
.area .y{right:100%;transform:translateY(50%);padding-right:.45rem}
.area .x{top:100%;transform:translateX(-50%);padding-top:.45rem}
.x.first{transform:none!important}.x.last{transform:translateX(-100%)!important}
.area .e{position:absolute;top:100%;transform:translateX(-50%);padding-top:1.6rem;font-size:.78rem;line-height:1;color:var(--quiet);white-space:nowrap}
.e.first{transform:none!important}.e.last{transform:translateX(-100%)!important}
.epochs .xlabel{padding-top:2.5rem}
.xlabel{font-size:.78rem;color:var(--quiet);text-align:right;padding-top:1.35rem;line-height:1.3}
.grid{stroke:var(--faint);stroke-width:1;vector-effect:non-scaling-stroke;fill:none}
.line{fill:none;stroke:currentColor;stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round;vector-effect:non-scaling-stroke}
.line.thin{stroke-width:1;opacity:.7}.line.raw{stroke-width:1;opacity:.4}
.dots{fill:none;stroke:currentColor;stroke-width:7;stroke-linecap:round;vector-effect:non-scaling-stroke}
.band{fill:currentColor;opacity:.22;stroke:none}
.fill{fill:currentColor;stroke:none;shape-rendering:crispEdges}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}.c4{color:var(--c4)}.c5{color:var(--c5)}
.p-forward{color:var(--forward)}.p-backward{color:var(--backward)}.p-optimizer{color:var(--optimizer)}
.p-communication{color:var(--communication)}.p-data_wait{color:var(--data_wait)}.p-copy{color:var(--copy)}
.p-evaluation{color:var(--evaluation)}.p-checkpoint{color:var(--checkpoint)}.p-startup{color:var(--startup)}.p-other{color:var(--other)}
.bars{margin:.6rem 0 .9rem}
.row{display:grid;grid-template-columns:7.5rem 1fr 5.6rem;gap:.7rem;align-items:center;margin:.22rem 0;font-size:.88rem}
.row .name{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}.row .num{text-align:right;white-space:nowrap}
.bar{display:flex;height:1.15rem;background:var(--wash);border-radius:3px;overflow:hidden}
.bar i{display:block;background:currentColor;flex:none}
.columns{display:grid;grid-template-columns:repeat(9,1fr);gap:.3rem;align-items:end;max-width:26rem;margin:.5rem 0 0;font-size:.78rem;text-align:center}
.columns>*{min-width:0}
.columns i{display:block;background:var(--c0);border-radius:2px 2px 0 0;min-height:1px}.columns i.p-data_wait{background:currentColor}
.columns span{color:var(--quiet);white-space:nowrap}.columns b{font-weight:400;display:block;border-top:1px solid var(--quiet)}
.columns+.xlabel{padding-top:.1rem;max-width:26rem;text-align:center;margin-bottom:.8rem}
.gantt{margin-top:.6rem;font-size:.8rem}
.lane{display:grid;grid-template-columns:4.6rem 1fr;align-items:center;margin:2px 0}
.lane .name{color:var(--quiet);white-space:nowrap}
.track{position:relative;display:block;height:1.25rem;background:var(--wash);border-radius:3px;overflow:hidden}
.track i{position:absolute;top:0;bottom:0;background:currentColor;font:normal .72rem/1.25rem system-ui,sans-serif;text-indent:.3rem;white-space:nowrap;overflow:hidden;min-width:2px;border-right:1px solid var(--wash)}
.track i.odd{opacity:.78}
.track i{-webkit-text-fill-color:#10131a}.track .p-backward,.track .p-optimizer,.track .p-communication{-webkit-text-fill-color:var(--on)}
.rank{margin:.7rem 0 .15rem;font-weight:600}
.head .track,.foot .track{background:none;overflow:visible;height:1.1rem}
.head .track span{position:absolute;color:var(--quiet);white-space:nowrap;border-left:1px solid var(--quiet);padding-left:.25rem;line-height:1.1}
.foot .track{border-top:1px solid var(--quiet)}.foot .x{top:.3rem;transform:translateX(-50%)}
.foot .name{text-align:right;padding-right:.6rem}
.meter{white-space:nowrap}.gauge{display:inline-block;width:5rem;height:.7rem;background:var(--faint);border-radius:2px;margin-right:.5rem;overflow:hidden}
.gauge i{display:block;height:100%;background:var(--c2)}
.kernels th code{white-space:normal;overflow-wrap:anywhere;display:inline-block;min-width:14rem;max-width:34rem}
.kernels .long{min-width:9rem;width:40%}
)";

const char* const media_css =
    R"(@media(max-width:60rem){.tiles{grid-template-columns:repeat(2,1fr)}.tiles div:last-child:nth-child(odd){grid-column:span 2}}
@media(max-width:34rem){
main{padding:1.1rem .9rem 2.5rem}h1{font-size:1.5rem}h2{margin-top:2rem}
dd{font-size:1.15rem}
.area{height:11.5rem}.frame{padding-left:3rem}.unit{margin-left:-3rem}
.row{grid-template-columns:4.2rem 1fr 5.4rem;gap:.5rem}.row small{display:none}
.findings li{grid-template-columns:1fr;gap:0}.gain{text-align:left}
th,td{padding:.26rem .3rem}table{font-size:.82rem}thead th{white-space:normal}.phases{font-size:.76rem}.phases th,.phases td{padding:.26rem .1rem}.phases tbody th{padding-right:0}.phases .key{margin-right:.2rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
.stack,.stack tbody,.stack tr,.stack tbody th,.stack td{display:block;width:auto;min-width:0;max-width:none}.stack thead{display:none}
.stack tr{padding:.5rem 0;border-bottom:1px solid var(--faint)}.stack tr>*{border:0;padding:.12rem 0}
.stack tbody th{white-space:normal;overflow-wrap:anywhere;font-weight:600}.stack th code{min-width:0;max-width:none}
.stack td[data-label]{display:flex;justify-content:space-between;gap:1rem;white-space:normal;text-align:right}
.stack td[data-label]::before{content:attr(data-label);color:var(--quiet);text-align:left;flex:none;max-width:50%;overflow-wrap:anywhere}
.stack td[data-label]>span{min-width:0;overflow-wrap:anywhere}
.lane{grid-template-columns:4rem 1fr}.track i{font-size:.66rem}}
@media print{@page{margin:14mm}
body{font-size:10.5pt}main{max-width:none;padding:0}
.plots{grid-template-columns:1fr 1fr;gap:1rem 1.5rem}.side{grid-template-columns:1fr 1fr;gap:1rem 1.5rem}
h2,h3,figcaption{break-after:avoid}h2{margin-top:1.4rem}.area{height:9.5rem}
table{font-size:8.5pt}thead th{white-space:normal}th,td{padding:.2rem .4rem}.scroll,pre{overflow:visible}pre{white-space:pre-wrap}a{color:inherit}summary{list-style:none;color:var(--ink)}}
)";

}  // namespace

std::string style() { return std::string(colors_css) + text_css + picture_css + media_css; }

}  // namespace millrace::report
