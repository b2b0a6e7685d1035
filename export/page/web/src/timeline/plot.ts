// The plot itself, by uPlot.
import uPlot from "uplot";
import { token } from "../colors";
import type { Curve, TimelineData } from "../data";
import { clockUnit, count, tickBytes, tickClocks } from "../units";
import { type Axis, isSparse } from "./axis";
import { drawBehind, drawUpon } from "./draw";
import { areApart, isGPU, scaleOf, strips } from "./gpu";

const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
const powers = Array.from({ length: 50 }, (_, i) => 2 ** i);
const wholes = Array.from({ length: 12 }, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat();

/** plotHeight is that of the plot with its axes, in CSS pixels. */
export function plotHeight(width: number): number {
	return width < 560 ? 300 : 380;
}

/** A View is what of the data is shown, and how. */
export interface View {
	data: TimelineData;
	axis: Axis;
	shown: Set<string>;
}

/** makePlot draws into an element; moved is called when the cursor has moved. */
export function makePlot(into: HTMLElement, view: View, width: number, moved: (u: uPlot) => void): uPlot {
	const { data, axis } = view;
	const narrow = width < 560;
	const counts = data.series.some((curve) => curve.unit === "count");
	const apart = areApart(data.series);
	const range = byteRange(strips(data));
	const options: uPlot.Options = {
		width,
		height: plotHeight(width),
		padding: [6, counts || apart ? 0 : 18, 0, 0],
		legend: { show: false },
		cursor: { y: false, drag: { x: true, y: false, dist: 4 }, points: { size: 7 } },
		scales: { x: { time: false }, y: { range }, d: { range }, n: { range: (_, __, max) => [0, Math.max(4, 1.25 * max)] } },
		axes: [
			xAxis(view),
			yAxis(narrow, apart),
			...(apart ? [gpuAxis(narrow, view)] : []),
			...(counts ? [countAxis(narrow, apart)] : []),
		],
		series: [{}, ...data.series.map((curve) => series(curve, view, apart))],
		hooks: {
			drawClear: [(u) => drawBehind(u, data, axis)],
			draw: [(u) => drawUpon(u, data, axis, apart)],
			setCursor: [moved],
		},
	};
	const columns = data.series.map((curve) => axis.rows.map((row) => curve.values[row] ?? null));
	return new uPlot(options, [axis.x, ...columns], into);
}

function series(curve: Curve, view: View, apart: boolean): uPlot.Series {
	const color = () => curveColor(curve.key);
	const sparse = isSparse(curve.values);
	const dash = curve.key === "tree" ? { dash: [6, 4] } : {};
	return {
		label: curve.key,
		scale: scaleOf(curve, apart),
		show: view.shown.has(curve.key),
		stroke: color,
		width: curve.key === "rss" || (curve.shown && isGPU(curve)) ? 3 : 1.5,
		spanGaps: sparse,
		...dash,
		...(curve.unit === "count" ? { paths: uPlot.paths.stepped!({ align: 1 }) } : {}),
		points: {
			show: (u, i, from, to) => {
				const values = u.data[i]!.slice(from, to + 1);
				return sparse && 12 * values.filter((value) => value != null).length < u.bbox.width / devicePixelRatio;
			},
			size: 5,
			stroke: color,
			fill: color,
		},
	};
}

/** curveColor is the colour of a curve. One that the style sheet does not know is grey. */
export function curveColor(key: string): string {
	return token(`curve-${key}`) || token("muted");
}

/** byteRange leaves room for so many strips of phases above the curves, and begins at zero where that costs little. */
function byteRange(rows: number): (_: uPlot, min: number | null, max: number | null) => uPlot.Range.MinMax {
	const above = rows === 1 ? 0.16 : 0.27;
	return (_, min, max) => {
		if (min === null || max === null) {
			return [0, 1 << 20];
		}
		const low = min < 0.4 * max ? 0 : min;
		const height = Math.max(max - low, 1 << 16, max / 1000);
		return [low === 0 ? 0 : Math.max(0, low - 0.1 * height), max + above * height];
	};
}

const axisBase = (): Partial<uPlot.Axis> => ({
	stroke: () => token("muted"),
	font: `12px ${token("sans")}`,
	labelFont: `12px ${token("sans")}`,
	grid: { stroke: () => token("grid"), width: 1 },
	ticks: { stroke: () => token("line"), width: 1, size: 5 },
});

function xAxis({ axis }: View): uPlot.Axis {
	const whole = axis.x.at(-1) ?? 0;
	const time = axis.kind === "time";
	return {
		...axisBase(),
		space: 60,
		incrs: time ? seconds : wholes,
		label: time ? `time, ${clockUnit(whole)}` : "steps of training",
		size: 32,
		labelSize: 20,
		values: (_, splits) => (time ? tickClocks(splits, whole) : splits.map(String)),
	};
}

function yAxis(narrow: boolean, apart: boolean): uPlot.Axis {
	return {
		...axisBase(),
		...(apart && !narrow ? { label: "host memory", labelSize: 18 } : {}),
		scale: "y",
		size: narrow ? 62 : 76,
		space: 36,
		incrs: powers,
		values: (_, splits) => tickBytes(splits),
	};
}

/** gpuAxis is that of GPU memory, on the right, where it has one of its own: in the colour of its curve. */
function gpuAxis(narrow: boolean, { data }: View): uPlot.Axis {
	const main = data.series.find((curve) => curve.shown && isGPU(curve));
	return {
		...yAxis(narrow, true),
		...(narrow ? {} : { label: "GPU memory" }),
		stroke: () => curveColor(main?.key ?? ""),
		scale: "d",
		side: 1,
		grid: { show: false },
		values: (u, splits) => (isScaleShown(u, "d") ? tickBytes(splits) : splits.map(() => "")),
	};
}

function isScaleShown(u: uPlot, scale: string): boolean {
	return u.series.some((s) => s.scale === scale && s.show);
}

/** countAxis is there whether a count is shown or not, except beside another axis: two would leave little of the plot. */
function countAxis(narrow: boolean, beside: boolean): uPlot.Axis {
	const size = narrow ? 34 : 44;
	return {
		...axisBase(),
		scale: "n",
		side: 1,
		size: (u, _, __, cycle) => (cycle > 0 && beside && !isScaleShown(u, "n") ? 0 : size), // in cycle 0 it is made
		space: 40,
		incrs: wholes,
		grid: { show: false },
		values: (u, splits) => (isScaleShown(u, "n") ? splits.map(count) : splits.map(() => "")),
	};
}
