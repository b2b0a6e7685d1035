// What lies behind and upon the curves: phases, spikes, marks, the baseline, the fitted slope, how heap was probed.
import type uPlot from "uplot";
import { token } from "../colors";
import type { MarkLine, PhaseBand, Slope, Span, TimelineData } from "../data";
import { shorten } from "../units";
import { type Axis, slopePoints } from "./axis";
import { namedCurves, scaleOf, strips } from "./gpu";
import { endPlaces, placeLabels } from "./labels";

/** The strip above the lines, for the names of the phases; there may be two of them; a letter with what is left free around it. In CSS pixels. */
const strip = 18;
const thickness = 15;
/** The ribbon at the bottom that shows when heap was not probed all the time. */
const ribbon = 5;

/** drawBehind draws the phases and the spikes, before the curves. */
export function drawBehind(u: uPlot, data: TimelineData, axis: Axis): void {
	clipped(u, (_, ratio) => {
		for (const phase of data.phases ?? []) {
			band(u, phase, axis, token(`phase-${phase.kind}`) || token("phase-open"));
		}
		for (const spike of data.spikes ?? []) {
			band(u, spike, axis, token("spike"), 2 * ratio);
		}
	});
}

/** drawUpon draws the slope, the names of the phases, the ribbon, the baseline, the marks, the changes and the names of curves, after the curves. */
export function drawUpon(u: uPlot, data: TimelineData, axis: Axis, apart: boolean): void {
	clipped(u, (ctx, ratio) => {
		if (data.slope) {
			drawSlope(u, ctx, ratio, data.slope, axis);
		}
		ctx.font = font(ratio);
		ctx.setLineDash([]);
		drawPhases(u, ctx, ratio, data.phases ?? [], axis);
		drawGPUPhases(u, ctx, ratio, data.gpu_phases ?? [], axis);
		for (const probing of data.probing ?? []) {
			band(u, probing, axis, token(`probing-${probing.kind}`), ratio, ribbon * ratio);
		}
		drawLines(u, ctx, ratio, linesOf(u, data, axis, ratio), strips(data) * strip);
		nameCurves(u, ctx, ratio, data, apart);
	});
}

/** drawGPUPhases draws the second strip: the phases of GPU memory, in their colours. */
function drawGPUPhases(u: uPlot, ctx: CanvasRenderingContext2D, ratio: number, phases: PhaseBand[], axis: Axis): void {
	for (const phase of phases) {
		const [from, to] = ends(u, phase, axis);
		const row = [from, u.bbox.top + strip * ratio, to - from, strip * ratio] as const;
		ctx.fillStyle = token("surface");
		ctx.fillRect(...row);
		ctx.fillStyle = token(`phase-${phase.kind}`) || token("phase-open");
		ctx.fillRect(...row);
		ctx.strokeStyle = token("line");
		ctx.lineWidth = ratio;
		ctx.strokeRect(...row);
	}
	drawPhases(u, ctx, ratio, phases, axis, strip);
}

/** nameCurves writes beside its right end which curve is which, where there are those of the host and of GPUs. */
function nameCurves(u: uPlot, ctx: CanvasRenderingContext2D, ratio: number, data: TimelineData, apart: boolean): void {
	const named = namedCurves(data.series).filter(({ index }) => u.series[index + 1]?.show);
	const places = named.map(({ index }) => {
		const [first, last] = u.series[0]!.idxs ?? [0, -1];
		const visible = Array.from(u.data[index + 1]!).slice(first, last + 1);
		const value = visible.findLast((at) => at != null);
		return value == null ? undefined : u.valToPos(value, scaleOf(data.series[index]!, apart), true);
	});
	if (places.length !== 2 || places[0] === undefined || places[1] === undefined) {
		return; // a single one needs no name
	}
	ctx.textAlign = "right";
	ctx.textBaseline = "middle";
	ctx.lineJoin = "round";
	ctx.strokeStyle = token("surface");
	ctx.lineWidth = 3 * ratio;
	endPlaces([places[0], places[1]], 12 * ratio).forEach((y, i) => {
		const { index, text } = named[i]!;
		const at = [text, u.bbox.left + u.bbox.width - 8 * ratio, y] as const;
		ctx.strokeText(...at);
		ctx.fillStyle = token(`curve-${data.series[index]!.key}`);
		ctx.fillText(...at);
	});
}

/** drawPhases names phases in the strip that begins so far below the top. */
function drawPhases(u: uPlot, ctx: CanvasRenderingContext2D, ratio: number, phases: PhaseBand[], axis: Axis, below = 0): void {
	ctx.textBaseline = "top";
	ctx.fillStyle = token("muted");
	for (const phase of phases) {
		const [from, to] = ends(u, phase, axis);
		const text = fitting(ctx, phase.label, to - from - 8 * ratio);
		ctx.fillText(text, from + 4 * ratio, u.bbox.top + (below + 4) * ratio);
	}
}

/** A Line is a moment with a text. */
interface Line {
	x: number;
	text: string;
	color: string;
	dash: number[];
}

/** linesOf are the baseline, the marks and the changes of the probes that are visible, in this order. */
function linesOf(u: uPlot, data: TimelineData, axis: Axis, ratio: number): Line[] {
	const x = (seconds: number) => u.valToPos(axis.at(seconds), "x", true);
	const line = (color: string, dash: number[]) => (mark: MarkLine) => ({ x: x(mark.at_s), text: mark.text, color, dash });
	const lines: Line[] = [
		...(data.marks ?? []).map(line(token("mark"), [])),
		...(data.changes ?? []).map(line(token("change"), [6 * ratio, 4 * ratio])),
	];
	if (data.baseline_s !== undefined) {
		const dash = [2 * ratio, 3 * ratio];
		lines.unshift({ x: x(data.baseline_s), text: "baseline", color: token("ink"), dash });
	}
	return lines.filter((line) => line.x >= u.bbox.left && line.x <= u.bbox.left + u.bbox.width);
}

/** leastGap is the mean distance between lines, in CSS pixels, below which they would cover the curves. */
const leastGap = 20;

/**
 * drawLines draws lines with their texts, as far as there is room for these, so far below the top. Where they are crowded,
 * all but the first are ticks without texts, until the reader zooms in.
 */
function drawLines(u: uPlot, ctx: CanvasRenderingContext2D, ratio: number, all: Line[], below: number): void {
	const { left, top, width, height } = u.bbox;
	const isCrowded = all.length * leastGap * ratio > width;
	const lines = isCrowded ? all.slice(0, 1) : all;
	all.slice(lines.length).forEach(({ x, color }) => {
		ctx.fillStyle = color;
		ctx.fillRect(x, top + height - 6 * ratio, ratio, 6 * ratio);
	});
	const room = { left, right: left + width, height: height - (below + 6) * ratio, thickness: thickness * ratio };
	const texts = lines.map((line) => fitting(ctx, line.text, 0.65 * room.height));
	const places = placeLabels(
		lines.map(({ x }, i) => ({ x, length: ctx.measureText(texts[i]!).width })),
		room,
	);
	lines.forEach(({ x, color, dash }) => {
		ctx.beginPath();
		ctx.moveTo(x, top + below * ratio);
		ctx.lineTo(x, top + height);
		ctx.strokeStyle = color;
		ctx.lineWidth = ratio;
		ctx.setLineDash(dash);
		ctx.stroke();
	});
	ctx.setLineDash([]);
	places.forEach((place, i) => {
		if (place) {
			sideways(ctx, ratio, texts[i]!, place.left + room.thickness / 2, top + height - 6 * ratio - place.from, lines[i]!.color);
		}
	});
}

function drawSlope(u: uPlot, ctx: CanvasRenderingContext2D, ratio: number, slope: Slope, axis: Axis): void {
	const points = slopePoints(slope, axis.kind === "time" ? 3 : 65);
	const trace = (key: "level" | "low" | "high", order = points) =>
		order.forEach((point, i) => {
			const to = [u.valToPos(axis.at(point.seconds), "x", true), u.valToPos(point[key], "y", true)] as const;
			i === 0 && key !== "high" ? ctx.moveTo(...to) : ctx.lineTo(...to);
		});
	ctx.beginPath();
	trace("low");
	trace("high", [...points].reverse());
	ctx.fillStyle = token("fan");
	ctx.fill();
	ctx.beginPath();
	trace("level");
	ctx.strokeStyle = token("slope");
	ctx.lineWidth = 2 * ratio;
	ctx.setLineDash([7 * ratio, 4 * ratio]);
	ctx.stroke();
}

/** clipped draws within the plot, and leaves the canvas as it was. */
function clipped(u: uPlot, draw: (ctx: CanvasRenderingContext2D, ratio: number) => void): void {
	const { ctx, bbox } = u;
	ctx.save();
	ctx.beginPath();
	ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
	ctx.clip();
	ctx.textAlign = "left";
	draw(ctx, devicePixelRatio);
	ctx.restore();
}

/** ends are the left and right end of what is visible of a span, in pixels of the canvas. */
function ends(u: uPlot, span: Span, axis: Axis): [number, number] {
	const { left, width } = u.bbox;
	const at = (seconds: number) => Math.max(left, Math.min(left + width, u.valToPos(axis.at(seconds), "x", true)));
	return [at(span.from_s), at(span.to_s)];
}

/** band fills a span, from the bottom as high as the plot or that. */
function band(u: uPlot, span: Span, axis: Axis, color: string, atLeast = 0, height = u.bbox.height): void {
	const [from, to] = ends(u, span, axis);
	u.ctx.fillStyle = color;
	u.ctx.fillRect(from, u.bbox.top + u.bbox.height - height, Math.max(to - from, atLeast), height);
}

/** sideways writes upwards around a vertical, from there on. */
function sideways(ctx: CanvasRenderingContext2D, ratio: number, text: string, x: number, y: number, color: string): void {
	ctx.save();
	ctx.translate(x, y);
	ctx.rotate(-Math.PI / 2);
	ctx.textBaseline = "middle";
	ctx.lineJoin = "round";
	ctx.lineWidth = 3 * ratio;
	ctx.strokeStyle = token("surface");
	ctx.strokeText(text, 0, 0);
	ctx.fillStyle = color;
	ctx.fillText(text, 0, 0);
	ctx.restore();
}

/** fitting is as much of a text as is no wider than that; nothing where that is less than three letters. */
function fitting(ctx: CanvasRenderingContext2D, text: string, width: number): string {
	let cut = shorten(text, 60);
	for (let length = [...cut].length - 1; ctx.measureText(cut).width > width; length--) {
		if (length < 4) {
			return "";
		}
		cut = shorten(text, length);
	}
	return cut;
}

function font(ratio: number): string {
	return `${11 * ratio}px ${token("sans")}`;
}
