// The horizontal axis of the timeline: time, or steps of training.
import type { Slope, TimelineData } from "../data";

export type AxisKind = "time" | "step";

/** An Axis places moments on the horizontal axis, and rows of values under it. */
export interface Axis {
	kind: AxisKind;
	/** Where each row lies, never decreasing. */
	x: number[];
	/** The row of the data that each of them is. */
	rows: number[];
	/** Where a moment, in seconds, lies. */
	at: (seconds: number) => number;
}

/** timeAxis is the axis of all rows in seconds. */
export function timeAxis(data: TimelineData): Axis {
	return { kind: "time", x: data.time_s, rows: data.time_s.map((_, i) => i), at: (seconds) => seconds };
}

/** stepAxis is the axis of the rows whose step is known; undefined where fewer than two steps were counted. */
export function stepAxis(data: TimelineData): Axis | undefined {
	const rows: number[] = [];
	const x: number[] = [];
	const times: number[] = [];
	data.steps?.forEach((step, row) => {
		if (step !== null && row < data.time_s.length) {
			rows.push(row);
			x.push(step);
			times.push(data.time_s[row]!);
		}
	});
	if (x.length < 2 || x[0] === x.at(-1)) {
		return undefined;
	}
	return { kind: "step", x, rows, at: (seconds) => interpolate(times, x, seconds) };
}

/** interpolate is the value at a place, between the values at the places around it; outside of them that of the nearest. */
export function interpolate(places: number[], values: number[], place: number): number {
	const next = firstNotBelow(places, place);
	if (next === 0 || next === places.length) {
		return values[Math.min(next, places.length - 1)]!;
	}
	const [from, to] = [places[next - 1]!, places[next]!];
	return values[next - 1]! + ((values[next]! - values[next - 1]!) * (place - from)) / (to - from);
}

/** firstNotBelow is the index of the first of increasing numbers that is not below x. */
export function firstNotBelow(numbers: number[], x: number): number {
	let [low, high] = [0, numbers.length];
	while (low < high) {
		const middle = (low + high) >> 1;
		if (numbers[middle]! < x) {
			low = middle + 1;
		} else {
			high = middle;
		}
	}
	return low;
}

/** isSparse is whether a curve was read so seldom that what lies between two readings is no gap. */
export function isSparse(values: (number | null)[]): boolean {
	return 2 * values.filter((value) => value !== null).length < values.length;
}

/** nearest is the row with a value that is nearest to a row; -1: it is farther away than readings are from each other. */
export function nearest(values: (number | null)[], row: number): number {
	const readings = values.flatMap((value, i) => (value === null ? [] : [i]));
	const gap = readings.reduce((most, at, i) => Math.max(most, at - (readings[i - 1] ?? at)), 0);
	for (let away = 0; away <= gap; away++) {
		for (const i of [row - away, row + away]) {
			if (values[i] !== null && values[i] !== undefined) {
				return i;
			}
		}
	}
	return -1;
}

export interface SlopePoint {
	seconds: number;
	level: number;
	low: number;
	high: number;
}

/** slopePoints are the fitted line and the fan that its interval makes around the middle. */
export function slopePoints(slope: Slope, points: number): SlopePoint[] {
	const middle = (slope.from_s + slope.to_s) / 2;
	return Array.from({ length: points }, (_, i) => {
		const seconds = slope.from_s + ((slope.to_s - slope.from_s) * i) / (points - 1);
		const away = seconds - middle;
		const rates = [slope.low_bytes_per_s, slope.high_bytes_per_s].map((rate) => slope.level_bytes + rate * away);
		return { seconds, level: slope.level_bytes + slope.bytes_per_s * away, low: Math.min(...rates), high: Math.max(...rates) };
	});
}
