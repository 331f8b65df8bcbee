CREATE TABLE "Book_Entry" (
	"EntryID" text collate "C" PRIMARY KEY NOT NULL,
	"Realm" text collate "C" NOT NULL,
	"Entity" text collate "C" NOT NULL,
	"EntityID" text collate "C" NOT NULL,
	"Operation" text NOT NULL,
	"Process" text collate "C" NOT NULL,
	"TransactionID" text collate "C" NOT NULL,
	"ReplayID" integer NOT NULL,
	"StepName" text collate "C" NOT NULL,
	"SyncToken" text,
	"Fields" jsonb,
	"FieldsKey" text,
	"RecordedAt" timestamp with time zone NOT NULL,
	"State" text NOT NULL,
	"CheckedAt" timestamp with time zone,
	"Changed" jsonb
);
--> statement-breakpoint
CREATE INDEX "Book_Entry_newest" ON "Book_Entry" USING btree ("RecordedAt","EntryID");--> statement-breakpoint
CREATE INDEX "Book_Entry_realm" ON "Book_Entry" USING btree ("Realm","RecordedAt","EntryID");--> statement-breakpoint
CREATE INDEX "Book_Entry_object" ON "Book_Entry" USING btree ("EntityID","Realm","Entity");--> statement-breakpoint
CREATE INDEX "Book_Entry_run" ON "Book_Entry" USING btree ("Process","TransactionID","RecordedAt","EntryID");