package cli

import (
	"context"
	"errors"
	"net/http"

	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/queue"
)

// redisState is what the metrics tell of Redis. What it does not tell of itself is -1. The embedded one is part of this process: it has no memory of its own,
// and evicts nothing.
func (s *System) redisState(ctx context.Context) (api.RedisState, error) {
	if s.conn == nil {
		return api.RedisState{}, errors.New("not connected")
	}
	d, err := s.conn.Depth(ctx)
	if err != nil {
		return api.RedisState{}, err
	}
	return api.RedisState{UsedBytes: d.UsedBytes, MaxBytes: d.MaxBytes, EvictedKeys: d.EvictedKeys}, nil
}

// leads says whether this process leads.
func (s *System) leads() bool { return s.leader != nil && s.leader.Leads() }

// reportSweep counts what a sweep did.
func (s *System) reportSweep(did queue.Swept) {
	m := s.metrics
	m.AttemptsOverdue(did.Overdue)
	m.JobsQuarantined(did.Quarantined)
	m.Braked(did.Braked)
	if did.Wiped {
		m.RedisWiped()
	}
	m.Reenqueued(did.Returned)
	m.RedisDebris(did.Purged + did.Debris)
}

// tenantOf says who makes a request; nil: nobody is told apart.
func (s *System) tenantOf() func(*http.Request) string {
	if s.settings.TenantHeader == "" {
		return nil
	}
	return api.TenantFromHeader(s.settings.TenantHeader)
}
