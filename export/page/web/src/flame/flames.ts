// The flame graphs of one report: of resident memory, and of GPU memory, one at a time.
import type { FlameData, GPUFlame } from "../data";
import { choice, make } from "../dom";
import { flame, type Shown } from "./flame";
import { decode, type Measure } from "./tree";

const hostMeasures: [Measure, string][] = [
	["resident", "resident bytes"],
	["objects", "objects"],
];
const gpuMeasures: [Measure, string][] = [
	["resident", "bytes"],
	["objects", "objects"],
];

/** A Tab is one of the graphs, drawn when it is chosen first. */
interface Tab {
	label: string;
	measures: [Measure, string][];
	data: FlameData;
	element: HTMLElement;
	shown?: Shown;
}

/** flames draws the graphs there are into an element, with a choice between them where there are several. */
export function flames(into: HTMLElement, host: FlameData | undefined, gpus: GPUFlame[]): void {
	const tabs: Tab[] = [
		...(host ? [{ label: "host, resident", measures: hostMeasures, data: host }] : []),
		...gpus.map((data) => ({ label: data.label, measures: measuresOf(data), data })),
	].map((tab) => ({ ...tab, element: make("div", { hidden: true }) }));
	const [first] = tabs;
	if (tabs.length === 1 && first) {
		flame(into, first.data, first.measures);
		return;
	}
	const options = tabs.map(({ label }, i): [string, string] => [String(i), label]);
	into.append(
		make(
			"div",
			{ class: "toolbar" },
			choice("Memory", "memory", options, (i) => show(tabs, Number(i))),
		),
		...tabs.map(({ element }) => element),
	);
	show(tabs, 0);
}

/** measuresOf are those of which a graph of GPU memory has anything: what is reserved has no objects. */
function measuresOf(data: GPUFlame): [Measure, string][] {
	return decode(data).objects > 0 ? gpuMeasures : gpuMeasures.slice(0, 1);
}

function show(tabs: Tab[], chosen: number): void {
	tabs.forEach((tab, i) => {
		tab.element.toggleAttribute("hidden", i !== chosen);
	});
	const tab = tabs[chosen];
	if (tab) {
		tab.shown ??= flame(tab.element, tab.data, tab.measures, String(chosen));
		tab.shown.fit();
	}
}
