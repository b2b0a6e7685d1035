// The timeline: memory over time or over steps.
import type uPlot from "uplot";
import type { TimelineData } from "../data";
import { make } from "../dom";
import { onTheme, onWidth, paperWidth } from "../theme";
import { type AxisKind, firstNotBelow, stepAxis, timeAxis } from "./axis";
import { type Legend, makeLegend, makeToolbar } from "./controls";
import { listen } from "./keys";
import { makePlot, plotHeight, type View } from "./plot";

/** timeline draws the timeline into its element. */
export function timeline(chart: HTMLElement, data: TimelineData): void {
	if (data.time_s.length < 2) {
		chart.append(make("p", { class: "text" }, "Too few readings for a curve."));
		return;
	}
	new Timeline(chart, data);
}

class Timeline {
	readonly view: View;
	readonly legend: Legend;
	readonly stage: HTMLElement;
	plot: uPlot;
	/** Where on the axis the cursor is; null: nowhere. */
	place: number | null = null;

	constructor(
		readonly chart: HTMLElement,
		data: TimelineData,
	) {
		const shown = data.series.filter((curve) => curve.shown).map((curve) => curve.key);
		this.view = { data, axis: timeAxis(data), shown: new Set(shown) };
		this.legend = makeLegend(this.view, (i, on) => this.toggle(i, on));
		const toolbar = makeToolbar(stepAxis(data) !== undefined, (kind) => this.choose(kind), {
			by: (factor) => this.zoom(factor),
			reset: () => this.reset(),
		});
		this.stage = make("div", { class: "stage", tabindex: "0", role: "slider", "aria-label": "Moment" });
		this.stage.setAttribute("aria-valuemin", "0");
		this.stage.setAttribute("aria-valuemax", String(data.time_s.length - 1));
		chart.append(toolbar, this.stage, this.legend.element);
		this.plot = this.draw();
		listen(this.stage, {
			move: (rows) => this.move(rows),
			zoom: (factor) => this.zoom(factor),
			reset: () => this.reset(),
		});
		onWidth(chart, (width) => this.resize(width));
		onTheme((paper) => this.resize(paper ? paperWidth : chart.clientWidth));
	}

	draw(): uPlot {
		const plot = makePlot(this.stage, this.view, this.chart.clientWidth, (u) => this.showValues(u.cursor.idx ?? null));
		this.showValues(null);
		return plot;
	}

	/** showValues shows the values at a point of the axis, or the last ones without a cursor. */
	showValues(place: number | null): void {
		this.place = place;
		const { rows } = this.view.axis;
		const row = rows[place ?? rows.length - 1] ?? 0;
		this.stage.setAttribute("aria-valuetext", this.legend.show(row));
		this.stage.setAttribute("aria-valuenow", String(row));
	}

	toggle(index: number, on: boolean): void {
		const { key } = this.view.data.series[index]!;
		on ? this.view.shown.add(key) : this.view.shown.delete(key);
		this.plot.setSeries(index + 1, { show: on });
	}

	choose(kind: AxisKind): void {
		const { data } = this.view;
		this.view.axis = (kind === "step" && stepAxis(data)) || timeAxis(data);
		this.plot.destroy();
		this.plot = this.draw();
	}

	resize(width: number): void {
		this.plot.setSize({ width, height: plotHeight(width) });
		this.plot.redraw(true, true);
	}

	/** range is what is visible, and what there is. */
	range() {
		const { x } = this.view.axis;
		const [first, last] = [x[0]!, x.at(-1)!];
		const { min = first, max = last } = this.plot.scales.x!;
		return { first, last, min, max };
	}

	/** zoom makes the visible range so many times as wide, around the cursor or the middle. */
	zoom(factor: number): void {
		const { first, last, min, max } = this.range();
		const center = this.place === null ? (min + max) / 2 : this.view.axis.x[this.place]!;
		const width = Math.min((max - min) * factor, last - first);
		if (width >= (last - first) / 1000) {
			this.show(center - ((center - min) / (max - min)) * width, width);
		}
	}

	/** show shows a range from there on, moved to where there is something. */
	show(from: number, width: number): void {
		const { first, last } = this.range();
		const min = Math.max(first, Math.min(from, last - width));
		this.plot.setScale("x", { min, max: min + width });
	}

	reset(): void {
		const { first, last } = this.range();
		this.show(first, last - first);
	}

	/** move moves the cursor by so many places, over those that lie on each other, and what is visible with it. */
	move(places: number): void {
		const { x } = this.view.axis;
		const { min, max } = this.range();
		const forward = Math.sign(places);
		const from = this.place ?? firstNotBelow(x, forward > 0 ? min : max) - forward;
		let to = from + places;
		while (x[to] !== undefined && x[to] === x[from]) {
			to += forward;
		}
		this.place = Math.max(0, Math.min(x.length - 1, to));
		const value = x[this.place]!;
		if (value < min || value > max) {
			this.show(value - (max - min) / 2, max - min);
		}
		requestAnimationFrame(() => {
			this.plot.setCursor({ left: this.plot.valToPos(value, "x"), top: 1 });
		});
	}
}
