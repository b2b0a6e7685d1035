// The script of allocscope's pages: draws what the page holds, and makes its tables sort and its links open what they lead to.
import "uplot/dist/uPlot.min.css";
import { paint } from "./colors";
import { readData } from "./data";
import { flames } from "./flame/flames";
import { openTarget } from "./hash";
import { callersApart, signDeltas, sortable } from "./tables";
import { timeline } from "./timeline/timeline";
import "../css/page.css"; // after those of the libraries, which it overrides

const data = readData();

for (const chip of document.querySelectorAll<HTMLElement>(".component[data-component]")) {
	paint(chip, chip.dataset.component ?? "");
}
document.querySelectorAll<HTMLTableElement>("table[data-sortable]").forEach(sortable);
callersApart();
signDeltas();

const timelineChart = document.getElementById("timeline-chart");
if (timelineChart && data.timeline) {
	timeline(timelineChart, data.timeline);
}
const flameChart = document.getElementById("flame-chart");
if (flameChart) {
	flames(flameChart, data.flame, data.gpu_flames ?? []);
}
openTarget(); // last: the charts have moved what is below them
