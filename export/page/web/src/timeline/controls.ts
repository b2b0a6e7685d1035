// What is around the plot: the curves with their values, the choice of the axis, zoom.
import { button, choice, make } from "../dom";
import { bytes, clock, count, shorten } from "../units";
import { type AxisKind, isSparse, nearest } from "./axis";
import { isGPU } from "./gpu";
import type { View } from "./plot";

/** A Legend names the curves, turns them on and off, and shows what they are at the cursor. */
export interface Legend {
	element: HTMLElement;
	/** show shows the values at a row of the data, and returns them as a sentence. */
	show: (row: number) => string;
}

/** makeLegend makes a checkbox for each curve. */
export function makeLegend(view: View, toggle: (index: number, on: boolean) => void): Legend {
	const { series } = view.data;
	const outputs = series.map(() => make("span", { class: "value" }));
	const boxes = series.map((curve, i) => {
		const box = make("input", { type: "checkbox", checked: view.shown.has(curve.key) });
		box.addEventListener("change", () => toggle(i, box.checked));
		const swatch = make("span", { class: "swatch", "data-curve": curve.key });
		return make("label", {}, box, swatch, `${shorten(curve.label, 60)} `, outputs[i]!);
	});
	const moment = make("span", { class: "moment" });
	const element = make(
		"div",
		{ class: "legend", role: "group", "aria-label": "Curves" },
		moment,
		...boxes,
		...fitted(view),
		...probed(view),
	);
	const show = (row: number) => {
		const texts = series.map((_, i) => valueAt(view, i, row));
		texts.forEach((text, i) => {
			outputs[i]!.textContent = text;
		});
		moment.textContent = momentAt(view, row);
		const shown = series.flatMap((curve, i) => (view.shown.has(curve.key) ? [`${curve.label} ${texts[i]}`] : []));
		return [moment.textContent, ...shown].join(", ");
	};
	return { element, show };
}

/** fitted names the line that was fitted to the last segment, where there is one. */
function fitted({ data: { slope, series } }: View): HTMLElement[] {
	if (!slope) {
		return [];
	}
	const text = `${series.some(isGPU) ? "fitted to RSS" : "fitted"}: ${slope.label}`;
	return [make("span", { class: "fitted" }, make("span", { class: "swatch", "data-curve": "slope" }), text)];
}

/** probed names the ribbon of each mode in which heap was not probed all the time. */
function probed({ data: { probing } }: View): HTMLElement[] {
	const labels = new Map((probing ?? []).map(({ kind, label }) => [kind, label]));
	return [...labels].map(([kind, label]) =>
		make("span", { class: "fitted" }, make("span", { class: "swatch", "data-curve": kind }), label),
	);
}

/** valueAt is what a curve is at a row; of one read seldom, the nearest reading. */
function valueAt({ data }: View, index: number, row: number): string {
	const { values, unit } = data.series[index]!;
	const value = values[isSparse(values) ? nearest(values, row) : row] ?? null;
	if (value === null) {
		return "–";
	}
	return unit === "bytes" ? bytes(value) : count(value);
}

/** momentAt names a row: its time, its step, the phase that it is in, and how heap was probed. */
function momentAt({ data }: View, row: number): string {
	const seconds = data.time_s[row] ?? 0;
	const step = data.steps?.[row];
	const bands = [data.phases, data.gpu_phases, data.probing].map((list) =>
		list?.find((band) => band.from_s <= seconds && seconds <= band.to_s),
	);
	const parts = [`at ${clock(seconds, data.time_s.at(-1) ?? 0)}`];
	if (step !== null && step !== undefined) {
		parts.push(`step ${step}`);
	}
	parts.push(...bands.flatMap((band) => (band ? [shorten(band.label, 60)] : [])));
	return parts.join(" · ");
}

/** A Zoom changes what is visible. */
export interface Zoom {
	by: (factor: number) => void;
	reset: () => void;
}

/** makeToolbar makes the choice of the axis, where there is one, and the buttons of the zoom. */
export function makeToolbar(steps: boolean, choose: (axis: AxisKind) => void, zoom: Zoom): HTMLElement {
	const axes: [AxisKind, string][] = [
		["time", "time"],
		["step", "steps"],
	];
	return make(
		"div",
		{ class: "toolbar" },
		...(steps ? [choice("Axis", "axis", axes, choose)] : []),
		make(
			"span",
			{ class: "buttons" },
			button("+", () => zoom.by(0.5), { "aria-label": "Zoom in", title: "Zoom in (+)" }),
			button("−", () => zoom.by(2), { "aria-label": "Zoom out", title: "Zoom out (−)" }),
			button("Show all", () => zoom.reset(), { title: "Show the whole trace (Esc)" }),
		),
		make("span", { class: "hint" }, "Drag to zoom. Keys: ← → move, + − zoom, Esc shows all."),
	);
}
