package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// keySystem holds the id of the system whose database of Redis this is.
const keySystem = "aviary:system"

// ErrForeign says that the database of Redis belongs to another system. Two systems in one would take each other's tickets for void, and drop them.
var ErrForeign = errors.New("queue: another system uses this database of Redis")

// Own makes the database that of one system, or refuses one that is another's: ErrForeign. From then on dispatcher, sweeper and lanes look again, since the
// server may be exchanged behind its address; after a wipe the database is claimed anew. Own comes before all of them. A Redis that does not answer
// is no error, as in Dial. The embedded one is nobody else's.
func (c *Conn) Own(ctx context.Context, system string) error {
	c.system = system
	if err := c.claim(ctx); errors.Is(err, ErrForeign) {
		return err
	}
	return nil
}

// claim sets the owner if there is none, and fails with ErrForeign if it is somebody else.
func (c *Conn) claim(ctx context.Context) error {
	if c.system == "" || c.memory != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	var owner *redis.StringCmd
	_, err := c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, keySystem, c.system, 0)
		owner = p.Get(ctx, keySystem)
		return nil
	})
	switch {
	case err != nil:
		return err
	case owner.Val() != c.system:
		return fmt.Errorf("%w: database %d at %s is that of the system %q, and ours is %s; give each system a database of its own, with its number at the end of the URL, "+
			"as in redis://host:6379/%d. If the other system is no more, empty this one with FLUSHDB",
			ErrForeign, c.options.DB, c.address, owner.Val(), c.system, c.options.DB+1)
	}
	return nil
}
