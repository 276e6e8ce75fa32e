//go:build unix

package chaos

// ablations are the mechanisms, and for each the test that must not pass without it. Not here are those that only save time: without the sentinel of a wiped Redis
// the audit hands its tickets over again, a little later.
var ablations = []struct {
	name    string
	test    string // a pattern of -run
	chaos   string // of AVIARY_TEST_CHAOS
	without []replacement
}{
	{
		name: "fence by attempt", test: "Test20_Freeze/^during_the_other$",
		without: []replacement{
			{"store/attempts.go", "current        = ` WHERE id = $1 AND attempt = $2 ", "current        = ` WHERE id = $1 AND attempt >= $2 "},
			{"store/attempts.go", "WHERE job_id = $1 AND attempt = $2 AND ended_at IS NULL`", "WHERE job_id = $1 AND attempt = $2`"},
		},
	},
	{
		name: "end of lost attempts", test: "Test20_Freeze/^during_the_other$",
		without: []replacement{{"queue/sweeper.go", "errors.Join(errStore, s.reap(ctx, &did), s.judge(ctx, &did))", "errors.Join(errStore, s.judge(ctx, &did))"}},
	},
	{
		name: "audit of tickets", test: "Test10_TakenUnheard",
		without: []replacement{{"queue/sweeper.go", "errors.Join(s.audit(ctx, did), ", "errors.Join("}},
	},
	{
		name: "search for debris", test: "Test14_LeaseDeleted",
		without: []replacement{{"queue/sweeper.go", ", s.clear(ctx, did))", ")"}},
	},
	{
		name: "device lock in the process", test: "TestSlotIsNoLock",
		without: []replacement{{"queue/lane.go", `	if err := l.seize(taskCtx); err != nil {
		return err
	}
	defer func() { <-l.lock }()
`, ""}},
	},
	{
		name: "device lock between processes", test: "TestTwoProcessesOneDevice",
		without: []replacement{{"cmd/internal/cli/node.go", `name := deviceFile(dir, device, ".lock")`, `name := deviceFile(dir, device, strconv.Itoa(os.Getpid()))`}},
	},
	{
		name: "taking over of a device", test: "Test02_KillEverybody",
		without: []replacement{{"cmd/internal/cli/worker.go", "		s.takeOver(ctx, d.Name())\n", ""}},
	},
	{
		name: "watchdog", test: "Test15_Hang", chaos: "long",
		without: []replacement{{"cmd/internal/cli/worker.go", "Stall: s.timing.Stall, Grace: s.timing.Grace, ", ""}},
	},
	{
		name: "idempotency", test: "Test04_AnswerLost/sqlite",
		without: []replacement{{"api/submit.go", "		out.Key = keys[0]\n", ""}},
	},
	{
		name: "a conflict is a success", test: "Test11_HandOverUnheard",
		without: []replacement{{"queue/dispatcher.go", "if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {", "if err == nil || errors.Is(err, asynq.ErrQueueNotFound) {"}},
	},
	{
		name: "release at a drain", test: "Test18_Drain/too_late",
		without: []replacement{{"settle.go", "case cause != nil && CodeOf(err) != CodeDeviceFailed:", "case cause != nil && CodeOf(err) == \"\":"}},
	},
	{
		name: "heartbeat that hears of a cancel", test: "Test23_Cancel",
		without: []replacement{{"attempt.go", "			stop(errCanceled)\n", ""}},
	},
	{
		name: "refusal of a Redis that evicts", test: "Test12_TasksDeleted/evicting",
		without: []replacement{{"queue/check.go", `case "noeviction":`, `case "noeviction", "allkeys-lru":`}},
	},
}
