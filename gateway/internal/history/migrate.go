package history

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// migrate brings the schema up to the newest version.
func (d *database) migrate(ctx context.Context) error {
	p, err := d.migrator()
	if err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// migrateDown drops the schema and all data.
func (d *database) migrateDown(ctx context.Context) error {
	p, err := d.migrator()
	if err != nil {
		return err
	}
	if _, err := p.DownTo(ctx, 0); err != nil {
		return fmt.Errorf("take the schema away: %w", err)
	}
	return nil
}

func (d *database) migrator() (*goose.Provider, error) {
	folder := map[goose.Dialect]string{
		goose.DialectPostgres: "postgres", goose.DialectMySQL: "mysql", goose.DialectSQLite3: "sqlite",
	}[d.dialect.goose]
	files, err := fs.Sub(migrations, "migrations/"+folder)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	p, err := goose.NewProvider(d.dialect.goose, d.sql, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return p, nil
}
