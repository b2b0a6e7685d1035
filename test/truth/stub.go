package main


func stressorTasks(c *campaign) []task { return nil }
