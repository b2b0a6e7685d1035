// What lies behind and upon the curves: phases, spikes, marks, the boundary, the fitted slope.
import type uPlot from "uplot";
import { token } from "../colors";
import type { Slope, Stretch, TimelineData } from "../data";
import { shorten } from "../words";
import { type Axis, slopePoints } from "./axis";

/** drawBehind draws the phases and the spikes, before the curves. */
export function drawBehind(u: uPlot, data: TimelineData, axis: Axis): void {
	clipped(u, (ctx, ratio) => {
		for (const phase of data.phases ?? []) {
			band(u, phase, axis, token(`phase-${phase.kind}`) || token("phase-open"));
		}
		for (const spike of data.spikes ?? []) {
			band(u, spike, axis, token("spike"), 2 * ratio);
		}
		ctx.font = font(ratio);
		ctx.textBaseline = "top";
		ctx.fillStyle = token("muted");
		for (const phase of data.phases ?? []) {
			const [from, to] = ends(u, phase, axis);
			const text = fitting(ctx, phase.label, to - from - 8 * ratio);
			ctx.fillText(text, from + 4 * ratio, u.bbox.top + 4 * ratio);
		}
	});
}

/** drawUpon draws the slope, the boundary and the marks, after the curves. Texts that would lie on others are left out. */
export function drawUpon(u: uPlot, data: TimelineData, axis: Axis): void {
	clipped(u, (ctx, ratio) => {
		if (data.slope) {
			drawSlope(u, ctx, ratio, data.slope, axis);
		}
		const written: number[] = [];
		const lines = (data.marks ?? []).map(({ at_s, text }) => ({ at_s, text, color: token("mark"), dash: [] as number[] }));
		if (data.boundary_s !== undefined) {
			lines.unshift({
				at_s: data.boundary_s,
				text: "growth counts from here",
				color: token("ink"),
				dash: [2 * ratio, 3 * ratio],
			});
		}
		for (const { at_s, text, color, dash } of lines) {
			const x = u.valToPos(axis.at(at_s), "x", true);
			line(ctx, x, u.bbox, color, dash, ratio);
			if (written.every((other) => Math.abs(x - other) > 14 * ratio)) {
				sideways(ctx, ratio, text, x, u.bbox, color);
				written.push(x);
			}
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

/** ends are the left and right end of what is visible of a stretch, in pixels of the canvas. */
function ends(u: uPlot, stretch: Stretch, axis: Axis): [number, number] {
	const { left, width } = u.bbox;
	const at = (seconds: number) => Math.max(left, Math.min(left + width, u.valToPos(axis.at(seconds), "x", true)));
	return [at(stretch.from_s), at(stretch.to_s)];
}

function band(u: uPlot, stretch: Stretch, axis: Axis, color: string, atLeast = 0): void {
	const [from, to] = ends(u, stretch, axis);
	u.ctx.fillStyle = color;
	u.ctx.fillRect(from, u.bbox.top, Math.max(to - from, atLeast), u.bbox.height);
}

function line(ctx: CanvasRenderingContext2D, x: number, box: uPlot.BBox, color: string, dash: number[], width: number): void {
	ctx.beginPath();
	ctx.moveTo(x, box.top);
	ctx.lineTo(x, box.top + box.height);
	ctx.strokeStyle = color;
	ctx.lineWidth = width;
	ctx.setLineDash(dash);
	ctx.stroke();
}

/** sideways writes upwards along the left of a line, from the bottom. */
function sideways(ctx: CanvasRenderingContext2D, ratio: number, text: string, x: number, box: uPlot.BBox, color: string): void {
	ctx.save();
	ctx.translate(x - 3 * ratio, box.top + box.height - 6 * ratio);
	ctx.rotate(-Math.PI / 2);
	ctx.font = font(ratio);
	ctx.textBaseline = "bottom";
	ctx.lineJoin = "round";
	ctx.lineWidth = 3 * ratio;
	ctx.strokeStyle = token("surface");
	const cut = fitting(ctx, text, 0.7 * box.height);
	ctx.strokeText(cut, 0, 0);
	ctx.fillStyle = color;
	ctx.fillText(cut, 0, 0);
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
