import assert from "node:assert/strict";
import { test } from "node:test";
import type { TimelineData } from "../src/data";
import { firstNotBelow, interpolate, isSparse, nearest, slopePoints, stepAxis } from "../src/timeline/axis";

const data = (time_s: number[], steps?: (number | null)[]): TimelineData => ({
	time_s,
	...(steps ? { steps } : {}),
	series: [],
	phases: null,
	marks: null,
	spikes: null,
	probing: null,
	changes: null,
});

test("the step axis has the rows whose step is known, and moments lie between them", () => {
	const axis = stepAxis(data([0, 1, 2, 3, 4], [null, 10, null, 30, 30]));
	assert.ok(axis);
	assert.deepEqual(axis.rows, [1, 3, 4]);
	assert.deepEqual(axis.x, [10, 30, 30]);
	assert.deepEqual([0, 1, 2, 2.5, 3, 3.5, 9].map(axis.at), [10, 10, 20, 25, 30, 30, 30]);
});

test("without two steps there is no step axis, and steps beyond the rows are left out", () => {
	for (const steps of [undefined, [], [null, null], [null, 5], [5, 5]]) {
		assert.equal(stepAxis(data([0, 1], steps)), undefined);
	}
	assert.deepEqual(stepAxis(data([0, 1], [1, 2, 3, 4]))?.x, [1, 2]);
});

test("the first that is not below is found as by looking at all", () => {
	for (let size = 0; size < 9; size++) {
		const numbers = Array.from({ length: size }, (_, i) => 2 * Math.floor(i / 2));
		for (let x = -1; x < 10; x++) {
			const all = numbers.findIndex((n) => n >= x);
			assert.equal(firstNotBelow(numbers, x), all < 0 ? size : all);
		}
	}
});

test("interpolation goes through the points and is level outside", () => {
	assert.deepEqual(
		[-1, 0, 1, 4, 10, 11].map((x) => interpolate([0, 2, 10], [0, 20, 100], x)),
		[0, 0, 10, 40, 100, 100],
	);
});

test("the reading nearest to a row represents it where readings are rare", () => {
	const values = [null, 1, null, null, null, 2, null];
	assert.equal(isSparse(values), true);
	assert.equal(isSparse([1, null, 2]), false);
	assert.deepEqual(
		[0, 1, 2, 3, 4, 6].map((row) => nearest(values, row)),
		[1, 1, 1, 1, 5, 5],
	);
	assert.equal(nearest([null, null], 0), -1);
});

test("a reading does not represent what was never read again", () => {
	const once = [null, 0, null, null];
	assert.deepEqual(
		[0, 1, 2, 3].map((row) => nearest(once, row)),
		[-1, 1, -1, -1],
	);
	assert.equal(nearest([1, null, 2, null, null, null, null, null], 6), -1);
});

test("the fan of the slope meets the line in the middle and is as wide as the interval at its ends", () => {
	const slope = { from_s: 10, to_s: 30, level_bytes: 100, bytes_per_s: 2, low_bytes_per_s: 1, high_bytes_per_s: 4, label: "" };
	assert.deepEqual(slopePoints(slope, 3), [
		{ seconds: 10, level: 80, low: 60, high: 90 },
		{ seconds: 20, level: 100, low: 100, high: 100 },
		{ seconds: 30, level: 120, low: 110, high: 140 },
	]);
});
